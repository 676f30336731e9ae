"""Keep what the demo prints as a picture: ``python -m tools.docs.demo_recording OUT.svg``.

The table that updates during the tour is in the picture in its final state.
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

from rich.console import Console

from frazil.cli.process.interrupting import Interrupts, interruptible
from frazil.cli.verbs.demo import DemoOptions, DemoScreen, show_tour
from frazil.telemetry.redaction import Redactor

COLUMNS = 108
# Rich's own template fetches a font from elsewhere and names its maker; every machine has a font.
_FOREIGN = re.compile(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", re.DOTALL)


def record(out: Path) -> int:
    """Take the tour and write the picture."""
    console = Console(record=True, force_terminal=True, width=COLUMNS, highlight=False)
    screen = DemoScreen(console, is_live=False, line_seconds=math.inf)

    def tour(interrupts: Interrupts) -> int:
        options = DemoOptions(folder=Path("frazil-demo"), seconds=15.0)
        show_tour(options, screen, Redactor(), interrupts)
        picture = _FOREIGN.sub("", console.export_svg(title="make demo"))
        out.write_text(picture, encoding="utf-8")
        return 0

    return interruptible(tour)


if __name__ == "__main__":
    sys.exit(record(Path(sys.argv[1]).absolute()))
