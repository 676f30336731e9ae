"""What a pipeline leaves at its source, and how a teardown removes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class ArtifactReader(Protocol):
    """Who uses an artifact now."""

    @property
    def process(self) -> int | None:
        """The process at the source; None: no one uses it."""

    @property
    def application(self) -> str | None:
        """The name that it gave itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One object at the source, and the statement that removes it.

    ``stays`` says why it is not removed; then the statement, if any, is for its owner.
    """

    kind: str
    name: str
    statement: str | None = None
    stays: str | None = None
    reader: ArtifactReader | None = None


class Teardown(Protocol):
    """What was found at the source, and the means to remove it."""

    @property
    def artifacts(self) -> Sequence[Artifact]:
        """All of them, in the order in which they are removed."""

    def require_idle(self) -> None:
        """SlotBusyError, naming who must stop, while one that would be removed is in use."""

    def remove(self, artifact: Artifact) -> bool:
        """Remove one of them; False when it was gone already."""
