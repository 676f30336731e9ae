"""Results to stdout, everything else to stderr; tables or JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
from enum import StrEnum
from typing import TYPE_CHECKING

from frazil.model.printable import printable, printable_json, printable_lines

if TYPE_CHECKING:
    from collections.abc import Sequence


# To the left edge, and nothing is left of what was there.
_ERASE_LINE = "\r\x1b[K"

# What a folded column needs to be read, with the space beside it.
_COLUMN_WIDTH = 6


class OutputFormat(StrEnum):
    """How a result is written."""

    TABLE = "table"
    JSON = "json"


def write_line(text: str = "") -> None:
    """A line of the result, whatever is in it."""
    sys.stdout.write(f"{printable(text)}\n")


def write_text(text: str) -> None:
    """Lines of the result."""
    sys.stdout.write(f"{printable_lines(text)}\n")


def write_note(text: str) -> None:
    """Lines for the user, not part of the result."""
    sys.stderr.write(f"{printable_lines(text)}\n")
    sys.stderr.flush()


def shows_progress() -> bool:
    """Whether someone sees a line that is written over and taken away again."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def show_progress(doing: str) -> None:
    """What is done now, in the terminal's last line; an empty text takes it away."""
    width = shutil.get_terminal_size().columns - len(" …") - 1
    line = f"{printable(doing)[:width]} …" if doing else ""
    sys.stderr.write(f"{_ERASE_LINE}{line}")
    sys.stderr.flush()


def write_json(value: object, *, indent: int | None = 2) -> None:
    """The result as one JSON document; takes what the json module takes."""
    document = json.dumps(value, indent=indent, ensure_ascii=False)
    sys.stdout.write(f"{printable_json(document)}\n")


def write_table(rows: Sequence[Sequence[str]], *, header: Sequence[str]) -> None:
    """The result in aligned columns; in a pipe without colour, folded or cut nowhere."""
    # Narrower ones lose whole columns when they are folded; the terminal breaks plain lines itself.
    is_wide = shutil.get_terminal_size().columns >= _COLUMN_WIDTH * len(header)
    if sys.stdout.isatty() and is_wide:
        from frazil.cli.terminal import print_table  # noqa: PLC0415 - 0.2 s that pipes do not need

        print_table(rows, header=header)
        return
    table = [list(header), *(list(map(printable, row)) for row in rows)]
    # The last column may be long: nothing follows it.
    widths = [max(len(row[column]) for row in table) for column in range(len(header) - 1)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        write_line("  ".join([*cells, row[-1]]).rstrip())
