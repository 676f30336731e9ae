"""The probes and /metrics: what a process shows of itself over HTTP."""
