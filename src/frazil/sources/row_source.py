"""Rows of a source's tables as of one moment, for ``frazil verify``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from frazil.hooks import Clock
    from frazil.model.marker import Position
    from frazil.sources.protocol import Batch


@dataclass(frozen=True, slots=True)
class PendingChanges:
    """Changes of one table that the source keeps for the ingest.

    ``newest`` is the position of the last one, -1 if there is none, None if that is unknown.
    ``is_read`` says that a process reads the source now.
    """

    is_read: bool
    newest: int | None = None


class RowSnapshot(Protocol):
    """The source at one position."""

    @property
    def identity(self) -> str:
        """What the position counts in, as ``Source.identity`` says it."""

    @property
    def position(self) -> int:
        """Transactions before it are in the snapshot, and no others."""

    def batch_of(self, name: str, keys: Sequence[Sequence[str]] = ()) -> Batch:
        """One table, or its rows with these keys only; raises what keeps it from being read."""


class RowSource(Protocol):
    """Reads rows of tables by key, and knows how positions are ordered."""

    def open(self, *, clock: Clock) -> AbstractContextManager[RowSnapshot]:
        """A snapshot of now."""

    def parse(self, position: Position) -> int:
        """A position as a number; later ones are greater."""

    def format(self, position: int) -> str:
        """The position as the source prints it."""

    def explain_identity_change(self, before: str, now: str) -> tuple[str, ...]:
        """As ``Source`` does."""

    def is_read(self) -> bool:
        """Whether a process reads the changes of this source now."""

    def load_pending(self, identity: str, until: int) -> PendingChanges:
        """The changes of the table with this identity before a position."""
