"""Results to stdout, everything else to stderr; tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class OutputFormat(StrEnum):
    """How a result is written."""

    TABLE = "table"
    JSON = "json"


def write_line(text: str = "") -> None:
    """A line of the result."""
    sys.stdout.write(f"{text}\n")


def write_note(text: str) -> None:
    """A line for the person at the terminal, not part of the result."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def write_json(value: object) -> None:
    """The result as one JSON document; takes what the json module takes."""
    write_line(json.dumps(value, indent=2, ensure_ascii=False))


def write_table(rows: Sequence[Sequence[str]], *, header: Sequence[str]) -> None:
    """The result in aligned columns, the same on a terminal and in a pipe."""
    table = [list(header), *map(list, rows)]
    # The last column is free to be long: nothing stands behind it.
    widths = [max(len(row[column]) for row in table) for column in range(len(header) - 1)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        write_line("  ".join([*cells, row[-1]]).rstrip())
