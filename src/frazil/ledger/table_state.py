"""How a captured table stands: one of few states, each with what it must say; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from frazil.errors import ForeignChangeError, PositionLostError
from frazil.model.command import command
from frazil.model.recorded_version import NEWER_STEP


@dataclass(frozen=True, slots=True)
class Copying:
    """The whole table is to be read, or being read; with a reason, that came to nothing."""

    word: ClassVar[str] = "copying"

    reason: str | None = None

    def __str__(self) -> str:
        return self.word if self.reason is None else f"{self.word} failed: {self.reason}"


@dataclass(frozen=True, slots=True)
class Streaming:
    """Changes are captured as they happen."""

    word: ClassVar[str] = "live"

    def __str__(self) -> str:
        return self.word


@dataclass(frozen=True, slots=True)
class Paused:
    """Nothing is captured until somebody acts; the source keeps what follows this position."""

    word: ClassVar[str] = "held"

    position: str
    reason: str

    def __str__(self) -> str:
        return f"held at {self.position}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ResyncRequired:
    """Changes after this position are missing, or are of another table; the reason says which."""

    word: ClassVar[str] = "resync needed"

    position: str
    reason: str

    def __str__(self) -> str:
        return f"resync needed since {self.position}: {self.reason}"

    def error(self, table: str) -> PositionLostError:
        """As it is told to a person, wherever they look."""
        return PositionLostError(
            f"the table has to be read again: {self.reason}.",
            table=table,
            position=self.position,
            next_step=command("resync", table),
        )


@dataclass(frozen=True, slots=True)
class Removed:
    """Not captured any more; a table that comes back after this is a new one."""

    word: ClassVar[str] = "left"

    position: str

    def __str__(self) -> str:
        return f"left at {self.position}"


State = Copying | Streaming | Paused | ResyncRequired | Removed


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """The state of one table; ``identity`` is what identifies it at the source.

    A table that could not be copied because of an obstacle has none: nothing of it was tried.
    """

    table: str
    identity: str
    state: State


def parse_state(word: str, position: str | None, reason: str | None) -> State:
    """A state from the columns of its row; what is not one of ours is refused, never guessed."""
    match word, position, reason:
        case Copying.word, None, None | str():
            return Copying(reason)
        case Streaming.word, None, None:
            return Streaming()
        case Paused.word, str(), str():
            return Paused(position, reason)
        case ResyncRequired.word, str(), str():
            return ResyncRequired(position, reason)
        case Removed.word, str(), None:
            return Removed(position)
        case _:
            message = "the ledger holds a state that this frazil does not know."
            raise ForeignChangeError(message, next_step=NEWER_STEP)
