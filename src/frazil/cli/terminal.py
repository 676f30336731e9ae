"""Tables on a terminal that is wide enough: coloured, and folded without losing a character."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from frazil.model.printable import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

# Cells that are a state, in any table.
STYLES: Final = {
    "ok": "green",
    "agrees": "green",
    "streaming": "green",
    "copying": "blue",
    "merging": "cyan",
    "behind": "yellow",
    "unknown": "yellow",
    "warns": "yellow",
    "differs": "bold red",
    "stopped": "bold red",
    "stops": "bold red",
}


def print_table(rows: Sequence[Sequence[str]], *, header: Sequence[str]) -> None:
    """Print a table to stdout, in colour unless the environment says otherwise."""
    Console().print(build_table(rows, header=header))


def build_table(
    rows: Sequence[Sequence[str | Text]], *, header: Sequence[str], right: Collection[str] = ()
) -> Table:
    """A table whose cells are folded when the terminal is narrow; ``right`` are numbers."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in header:
        table.add_column(title, justify="right" if title in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(each) for each in row))
    return table


def _cell(content: str | Text) -> Text:
    if isinstance(content, Text):
        return content
    return Text(printable(content), style=STYLES.get(content, ""))
