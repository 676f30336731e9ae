"""Logs, metrics, traces and error reports, and the redactor that all of them pass.

Start with ``logs.py`` and ``redaction.py``; ``metric_names.py`` lists every metric.
"""
