"""What loops report becomes status, metrics, logs and spans; begin with ``recorders``."""
