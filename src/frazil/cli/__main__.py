"""``python -m frazil.cli`` is ``frazil``."""

import sys

from frazil.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
