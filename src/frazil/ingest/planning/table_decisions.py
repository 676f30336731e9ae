"""The state of each table after the source was inspected; pure.

What the source never announces is found here: a table that is gone, that is another one under the
same name, or that left the publication and came back is not the one whose changes we have. A
table that cannot be copied because of an obstacle is checked each time, and copied once it can be.

A table that begins live is streaming from the start. It has no identity until something of it was
captured, so that one whose changelog is not there yet differs from one whose changelog is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from frazil.ledger.table_state import (
    Copying,
    Gone,
    Paused,
    Removed,
    ResyncRequired,
    Streaming,
    TableState,
)
from frazil.model.cause import Cause
from frazil.model.source_table import TableBegin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frazil.ledger.table_state import State
    from frazil.model.marker import Marker
    from frazil.model.source_table import SourceTable


_NONE_MET: Mapping[str, Cause] = MappingProxyType({})


class ExplainIdentityChange(Protocol):
    """As ``Source.explain_identity_change``."""

    def __call__(self, before: str, now: str, *, was_gone: bool = False) -> tuple[str, ...]:
        """What happened to a table between two of its identities; none: it is the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inspection:
    """One table in the ledger and at the source, which may not have it."""

    recorded: TableState
    table: SourceTable | None
    position: str
    explain_identity_change: ExplainIdentityChange
    retries_paused: bool
    # The last obstacle it met.
    obstacle_met: Cause | None

    def decide(self) -> TableState:
        """Its state now, and its identity: the same table may show more than was recorded."""
        state, identity = self._state(), self.recorded.identity
        if self.table is not None and identity and isinstance(state, Streaming | Paused | Gone):
            # What has no identity took the name of another table, which may come back.
            identity = self.table.identity or identity
        return replace(self.recorded, state=state, identity=identity)

    def _state(self) -> State:
        before = self.recorded.state
        if isinstance(before, Removed | ResyncRequired):
            return before
        if isinstance(before, Copying) and self.table is not None:
            return self._to_be_copied(before, self.table)
        if self.table is None or not self.table.identity:
            # What has no identity took its name, and sends no changes.
            return self._gone(before)
        was_gone = isinstance(before, Gone)
        differences = self._differences(self.table.identity, was_gone=was_gone)
        if differences:
            return ResyncRequired(self.position, ", and ".join(differences))
        if was_gone or (isinstance(before, Paused) and self.retries_paused):
            return Streaming()
        return before

    def _differences(self, identity: str, *, was_gone: bool) -> tuple[str, ...]:
        if not self.recorded.identity:
            return ()
        return self.explain_identity_change(self.recorded.identity, identity, was_gone=was_gone)

    def _to_be_copied(self, before: Copying, table: SourceTable) -> Copying | Streaming:
        if table.obstacle is not None:
            return Copying(Cause.of(table.obstacle))
        if table.begins is TableBegin.STREAM and not self.recorded.identity:
            return Streaming()
        never_tried = before.cause is not None and not self.recorded.identity
        waited_for_this = before.cause is not None and before.cause == self.obstacle_met
        return Copying() if self.retries_paused or never_tried or waited_for_this else before

    def _gone(self, before: Copying | Streaming | Paused | Gone) -> State:
        if isinstance(before, Copying) or not self.recorded.identity:
            # Nothing of it was captured: if it appears, it is a new one.
            return Removed(self.position)
        return before if isinstance(before, Gone) else Gone(self.position)


def judge_tables(
    table_states: Mapping[str, TableState],
    tables: Mapping[str, SourceTable],
    *,
    selects: Callable[[str], bool],
    explain_identity_change: ExplainIdentityChange,
    position: str,
    retries_paused: bool = False,
    obstacles_met: Mapping[str, Cause] = _NONE_MET,
) -> tuple[TableState, ...]:
    """The states that change, new tables included.

    ``explain_identity_change`` describes what happened between two identities of a table, nothing
    for the same table: then the newer one is recorded. ``position`` is what the source was
    acknowledged to. A table that is paused is tried again only when ``retries_paused``: when an
    operator may have acted. ``obstacles_met`` are the obstacles that earlier inspections found: a
    table that waits for one of them is copied once it is gone.
    """
    known = {
        name: each for name, each in table_states.items() if not isinstance(each.state, Removed)
    }
    new = [
        _identified(TableState(table=name, identity="", state=_first_state(table)), table)
        for name, table in tables.items()
        if name not in known and selects(name)
    ]
    inspected = [
        _identified(
            _Inspection(
                recorded=recorded,
                table=tables.get(name),
                position=position,
                explain_identity_change=explain_identity_change,
                retries_paused=retries_paused,
                obstacle_met=obstacles_met.get(name),
            ).decide()
            if selects(name)
            else replace(recorded, state=Removed(position)),
            tables.get(name),
        )
        for name, recorded in known.items()
    ]
    changed = [each for each in inspected if each != known[each.table]]
    return tuple(sorted([*new, *changed], key=lambda each: each.table))


def _first_state(table: SourceTable) -> Copying | Streaming:
    if table.obstacle is not None:
        return Copying(Cause.of(table.obstacle))
    return Streaming() if table.begins is TableBegin.STREAM else Copying()


def _identified(state: TableState, table: SourceTable | None) -> TableState:
    """With the identity under which it is to be copied.

    One that was never tried gets none while an obstacle is in the way. One that has an identity
    keeps it, and with it its name in the lake.
    """
    if table is None or not isinstance(state.state, Copying):
        return state
    if state.identity or table.obstacle is not None:
        return state
    return replace(state, identity=table.identity)


@dataclass(frozen=True, slots=True)
class SourceNeeds:
    """What a source has to keep for tables in these states.

    Changes of ``tables`` since the marker; without one it may begin wherever it is.
    """

    table_states: Mapping[str, TableState]
    tables: tuple[str, ...]
    since: Marker | None

    def after_loss(self) -> SourceNeeds:
        """Every table is copied again, because changes are lost."""
        copied = {name: replace(self.table_states[name], state=Copying()) for name in self.tables}
        return replace(self, table_states={**self.table_states, **copied}, since=None)


def plan_needs(
    table_states: Mapping[str, TableState], acknowledged: Marker | None, *, is_copying: bool = False
) -> SourceNeeds:
    """What a source is prepared for; ``is_copying``: a copy runs that needs what follows it."""
    states = {name: each.state for name, each in table_states.items()}
    tables = tuple(name for name, state in states.items() if not isinstance(state, Removed))
    counts_nothing = not is_copying and all(isinstance(states[name], Copying) for name in tables)
    return SourceNeeds(table_states, tables, None if counts_nothing else acknowledged)
