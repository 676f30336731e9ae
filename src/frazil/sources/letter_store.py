"""Dead letters, wherever they are kept, and what a source offers that keeps its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence, Set

    from frazil.model.records.dead_letter import DeadLetter


class LetterStore(Protocol):
    """The dead letters of one pipeline."""

    def letters(
        self,
        *,
        ids: Collection[str] | None = None,
        table: str | None = None,
        reason: str | None = None,
    ) -> Iterator[DeadLetter]:
        """Those that are meant, oldest first; without payloads, which may be large."""

    def payloads(self, ids: Collection[str]) -> Mapping[str, bytes]:
        """What these letters hold; one that is gone has none."""

    def drop(self, ids: Collection[str]) -> None:
        """Remove letters, all or none."""


class SourceLetters(LetterStore, Protocol):
    """Those that a source keeps."""

    def replay(self, ids: Sequence[str]) -> Set[str]:
        """Let the next batch read their records again; the letters of which it will.

        What becomes a row then loses its letter, what does not keeps it, with one more attempt. May
        be repeated: a record that waits already comes once.
        """
