"""Exit 0 while the process of this container answers, wherever the variable lets it listen."""

import os
import urllib.request

port = os.environ.get("FRAZIL__TELEMETRY__LISTEN", ":9093").rpartition(":")[2]
urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=4)
