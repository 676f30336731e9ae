"""The marker: how far a table has come, and the one rule by which it moves.

Every commit of ours moves a table's marker from P to Q. Whether a move is allowed is decided here,
without I/O; that no other process moved it meanwhile is ensured by the catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

Offsets = Mapping[str, int]
# An LSN, a snapshot id or a batch number as text, or one offset per partition.
Position = str | Offsets


class MarkerRole(StrEnum):
    """Who moves the marker; each role has a table property of its own."""

    INGEST = "ingest"
    MERGE = "merge"

    @property
    def property_name(self) -> str:
        """The table property that holds the marker."""
        return f"frazil.{self.value}"


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """The commit that wrote a marker: its id, and its position in the table's order."""

    id: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """How far a table has come in one source."""

    pipeline: str
    source: str
    position: Position
    batch: str
    epoch: int = 0
    sequence: str | None = None
    truncated: str | None = None
    # What the source wants to find again at the next connection; only the ledger's marker has it.
    witness: str | None = None
    snapshot: SnapshotRef | None = None

    def __post_init__(self) -> None:
        if isinstance(self.position, Mapping):
            # Read-only and in one order.
            ordered = MappingProxyType(dict(sorted(self.position.items())))
            object.__setattr__(self, "position", ordered)

    def __reduce__(self) -> tuple[object, ...]:
        # A read-only view does not pickle; its contents do.
        state = {name: getattr(self, name) for name in self.__slots__}
        if isinstance(self.position, Mapping):
            state["position"] = dict(self.position)
        return (_rebuild, (state,))

    def written_by(self, snapshot: SnapshotRef) -> Marker:
        """The marker as the commit with this snapshot writes it."""
        return replace(self, snapshot=snapshot)


def _rebuild(state: dict[str, object]) -> Marker:
    return Marker(**state)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class MarkerMove:
    """What a batch wants: from the state it was planned on to the state it leads to.

    Positions by partition name only the partitions that move; a partition that ``start`` does not
    name is expected to be new.
    """

    role: MarkerRole
    start: Position | None
    goal: Marker


@dataclass(frozen=True, slots=True)
class Override:
    """A marker instead of another, be that valid, lost or unreadable: an operator's repair.

    ``seen`` is the property's text when this was decided; over any other text it does not go.
    """

    role: MarkerRole
    seen: str | None
    goal: Marker


@dataclass(frozen=True, slots=True)
class SeenMarker:
    """The text of a marker that is replaced whatever it says; None where there was none."""

    text: str | None


@dataclass(frozen=True, slots=True)
class Allowed:
    """The move fits: this is the table's next marker, its snapshot still to be named."""

    marker: Marker


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """The table is already where the move leads, by the same batch."""

    marker: Marker


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Another process moved the marker."""

    found: Marker


@dataclass(frozen=True, slots=True)
class OtherSource:
    """The marker counts in another source."""

    found: Marker


@dataclass(frozen=True, slots=True)
class Lost:
    """The batch was planned on a marker, and the table has none."""


Verdict = Allowed | AlreadyDone | Overtaken | OtherSource | Lost


def judge_move(found: Marker | None, move: MarkerMove) -> Verdict:
    """Whether the table's marker lets this move happen."""
    if found is None:
        return Allowed(move.goal) if move.start is None else Lost()
    return _judge_against(found, move)


def _judge_against(found: Marker, move: MarkerMove) -> Verdict:
    if found.batch == move.goal.batch and _covers(found.position, move.goal.position):
        return AlreadyDone(found)
    if found.source != move.goal.source:
        return OtherSource(found)
    if found.epoch > move.goal.epoch:
        # A resync has begun a new epoch; what was planned in the old one is void.
        return Overtaken(found)
    if isinstance(move.goal.position, Mapping):
        return _judge_offsets(found, move, move.goal.position)
    return Allowed(move.goal) if found.position == move.start else Overtaken(found)


def _covers(found: Position, goal: Position) -> bool:
    if isinstance(found, Mapping) and isinstance(goal, Mapping):
        return all(found.get(partition) == offset for partition, offset in goal.items())
    return found == goal


def _judge_offsets(found: Marker, move: MarkerMove, goal: Offsets) -> Verdict:
    """Two workers share a table: each checks and moves its own partitions only."""
    if not isinstance(found.position, Mapping):
        return OtherSource(found)
    start = move.start if isinstance(move.start, Mapping) else {}
    if any(found.position.get(partition) != start.get(partition) for partition in goal):
        return Overtaken(found)
    return Allowed(replace(move.goal, position={**found.position, **goal}))
