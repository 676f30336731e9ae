"""The state of a captured table: one of a few, each with the fields that belong to it; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from frazil.errors import PositionLostError, UnsupportedSchemaChangeError
from frazil.model.cause import Cause
from frazil.model.command import command


@dataclass(frozen=True, slots=True)
class Copying:
    """The table is to be copied, or being copied; with a cause, the last attempt failed."""

    word: ClassVar[str] = "copying"

    cause: Cause | None = None

    def __str__(self) -> str:
        return self.word if self.cause is None else f"{self.word} failed: {_with_next(self.cause)}"


@dataclass(frozen=True, slots=True)
class Streaming:
    """Changes are captured as they happen."""

    word: ClassVar[str] = "streaming"

    def __str__(self) -> str:
        return self.word


@dataclass(frozen=True, slots=True)
class Paused:
    """Nothing is captured until an operator acts; the source keeps what follows this position."""

    word: ClassVar[str] = "paused"

    position: str
    cause: Cause

    def __str__(self) -> str:
        return f"{self.word} at {self.position}: {_with_next(self.cause)}"


@dataclass(frozen=True, slots=True)
class Gone:
    """Paused because the source does not have the table any more; it may come back."""

    word: ClassVar[str] = "gone"

    position: str

    @property
    def cause(self) -> Cause:
        """As for any other table that is paused."""
        return Cause.of(IS_GONE)

    def __str__(self) -> str:
        return f"{Paused.word} at {self.position}: {_with_next(self.cause)}"


@dataclass(frozen=True, slots=True)
class ResyncRequired:
    """Changes after this position are missing, or are of another table; the reason says which."""

    word: ClassVar[str] = "resync required"

    position: str
    reason: str

    def __str__(self) -> str:
        return f"{self.word} since {self.position}: {self.reason}"

    def error(self, table: str) -> PositionLostError:
        """As every command and page shows it."""
        return PositionLostError(
            f"the table has to be copied again: {self.reason}.",
            table=table,
            position=self.position,
            next_step=command("resync", table),
        )


@dataclass(frozen=True, slots=True)
class Removed:
    """Not captured any more; a table that comes back after this is a new one."""

    word: ClassVar[str] = "removed"

    position: str

    def __str__(self) -> str:
        return f"{self.word} at {self.position}"


def _with_next(cause: Cause) -> str:
    return str(cause) if cause.remedy is None else f"{cause} Next: {cause.remedy}"


State = Copying | Streaming | Paused | Gone | ResyncRequired | Removed

IS_GONE = UnsupportedSchemaChangeError(
    "the table is not at the source any more: it was dropped, renamed or is not published.",
    next_step="bring it back, or leave it out by source.exclude",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """The state of one table; ``identity`` is what identifies it at the source.

    A table of which nothing was tried yet, because of an obstacle, has none.
    """

    table: str
    identity: str
    state: State
