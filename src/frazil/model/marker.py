"""The marker: how far a table has come, and the one rule by which it moves.

A marker is a table property, written by the same Iceberg commit as the data files: rows and
position cannot come apart. A commit moves it from P, on which its batch was planned, to Q, or does
not happen. The rule is here, without I/O; that no other process moves the marker between judging
and committing is ensured by the catalog's compare-and-swap. A commit whose reply was lost is judged
again: the same batch at Q is ``AlreadyDone``. A new process plans new batches from the markers that
it finds, so it never needs to know what the old one was doing.
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
    """How far a table has come in one source.

    For INGEST ``position`` counts in the source; for MERGE it is a snapshot id of the changelog,
    and ``source`` the changelog's UUID. ``batch`` is the id of the batch that moved the marker
    here. ``epoch`` rises with a resync of the table and when the source continues elsewhere, as
    after a fail-over. For MERGE ``sequence`` is the highest sequence number that was merged, and
    ``truncated`` that of the last TRUNCATE. ``snapshot`` is the commit that wrote the marker.
    """

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


def moved_from(start: Position | None, goal: Position) -> Position | None:
    """Where a move to this goal begins: by partition, the partitions that move."""
    if isinstance(start, Mapping) and isinstance(goal, Mapping):
        return {partition: start[partition] for partition in goal if partition in start}
    return start


def _rebuild(state: dict[str, object]) -> Marker:
    return Marker(**state)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class MarkerMove:
    """What a batch wants: from the state it was planned on to the state it leads to.

    By partition, ``goal`` names the partitions that move, each of which is expected where ``start``
    has it; one that ``start`` does not name is expected to be new. All others stay where they are.
    """

    role: MarkerRole
    start: Position | None
    goal: Marker


@dataclass(frozen=True, slots=True)
class Override:
    """A marker instead of another, valid or not: a restart, or an operator's repair.

    ``seen`` is the property's text when this was decided; over any other text it does not go.
    """

    role: MarkerRole
    seen: str | None
    goal: Marker


@dataclass(frozen=True, slots=True)
class Carry:
    """The marker stays where it is: the commit moves rows between files and adds no change.

    Its batch stays too, so that a commit whose reply was lost still finds itself done.
    """

    role: MarkerRole


@dataclass(frozen=True, slots=True)
class SeenMarker:
    """The text of a marker that a restart replaces, whatever it says; None where there was none."""

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
    """The marker is not where the batch was planned, or of a newer epoch: FencedError."""

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
    """Whether the table's marker lets this move happen; a refusal becomes an error of its own."""
    if found is None:
        return Allowed(move.goal) if move.start is None else Lost()
    return _judge_against(found, move)


def _judge_against(found: Marker, move: MarkerMove) -> Verdict:
    if found.batch == move.goal.batch and _covers(found.position, move.goal.position):
        return AlreadyDone(found)
    if found.source != move.goal.source:
        return OtherSource(found)
    if found.epoch > move.goal.epoch:
        # A resync or a fail-over began a new epoch; what was planned in the old one is void.
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
    witness = move.goal.witness or found.witness
    return Allowed(replace(move.goal, position={**found.position, **goal}, witness=witness))
