"""How each table stands after a look at the source; pure.

What the source never announces is found here: a table that is gone, that is another one under the
same name, or that left the publication and came back is not the one whose changes we have. A
table that cannot be copied because of an obstacle is looked at each time, and copied once it can.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from frazil.errors import UnsupportedSchemaChangeError
from frazil.ledger.table_state import (
    Copying,
    Paused,
    Removed,
    ResyncRequired,
    Streaming,
    TableState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frazil.ledger.table_state import State
    from frazil.model.source_table import SourceTable

IS_GONE = UnsupportedSchemaChangeError(
    "the table is not at the source any more: it was dropped, renamed or is not published.",
    next_step="bring it back, or leave it out by source.exclude",
)
GONE = IS_GONE.told


class ExplainIdentityChange(Protocol):
    """As ``Source.explain_identity_change``."""

    def __call__(self, before: str, now: str, *, was_gone: bool = False) -> tuple[str, ...]:
        """What happened to a table between two of its identities; none: it is the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """One table in the ledger and at the source, which may not have it."""

    standing: TableState
    table: SourceTable | None
    position: str
    explain_identity_change: ExplainIdentityChange
    retries_held: bool

    def standing_now(self) -> TableState:
        """How it stands now, and what it is: the same table may show more than was recorded."""
        state, identity = self._state(), self.standing.identity
        if self.table is not None and isinstance(state, Streaming | Paused):
            # What has no identity took the name of another table, which may come back.
            identity = self.table.identity or identity
        return replace(self.standing, state=state, identity=identity)

    def _state(self) -> State:
        before = self.standing.state
        if isinstance(before, Removed | ResyncRequired):
            return before
        if isinstance(before, Copying) and self.table is not None:
            return self._to_be_copied(before, self.table)
        if self.table is None or not self.table.identity:
            # What has no identity took its name, and sends no changes.
            return self._gone(before)
        was_gone = isinstance(before, Paused) and before.reason == GONE
        differences = self.explain_identity_change(
            self.standing.identity, self.table.identity, was_gone=was_gone
        )
        if differences:
            return ResyncRequired(self.position, ", and ".join(differences))
        if was_gone or (isinstance(before, Paused) and self.retries_held):
            return Streaming()
        return before

    def _to_be_copied(self, before: Copying, table: SourceTable) -> Copying:
        if table.obstacle is not None:
            return Copying(table.obstacle.told)
        met_an_obstacle = before.reason is not None and not self.standing.identity
        return Copying() if self.retries_held or met_an_obstacle else before

    def _gone(self, before: Copying | Streaming | Paused) -> State:
        if isinstance(before, Copying):
            # Nothing of it was captured: should it come, it is a new one.
            return Removed(self.position)
        if isinstance(before, Paused) and before.reason == GONE:
            return before
        return Paused(self.position, GONE)


def judge_tables(
    table_states: Mapping[str, TableState],
    tables: Mapping[str, SourceTable],
    *,
    selects: Callable[[str], bool],
    explain_identity_change: ExplainIdentityChange,
    position: str,
    retries_held: bool = False,
) -> tuple[TableState, ...]:
    """The standings that change, new tables included.

    ``explain_identity_change`` says in words what happened between two identities of a table that may have been
    gone in between, none for the same table: then the newer one is recorded. ``position`` is what
    the source was acknowledged to. A table that is held is tried again only
    when ``retries_held``: when somebody may have acted.
    """
    known = {
        name: each for name, each in table_states.items() if not isinstance(each.state, Removed)
    }
    new = [
        _identified(TableState(table=name, identity="", state=Copying(_told(table))), table)
        for name, table in tables.items()
        if name not in known and selects(name)
    ]
    looked_at = [
        _identified(
            _Look(
                standing=standing,
                table=tables.get(name),
                position=position,
                explain_identity_change=explain_identity_change,
                retries_held=retries_held,
            ).standing_now()
            if selects(name)
            else replace(standing, state=Removed(position)),
            tables.get(name),
        )
        for name, standing in known.items()
    ]
    changed = [each for each in looked_at if each != known[each.table]]
    return tuple(sorted([*new, *changed], key=lambda each: each.table))


def _told(table: SourceTable) -> str | None:
    return None if table.obstacle is None else table.obstacle.told


def _identified(standing: TableState, table: SourceTable | None) -> TableState:
    """With the identity under which it is to be copied; none while an obstacle is in the way."""
    if table is None or not isinstance(standing.state, Copying):
        return standing
    if table.obstacle is not None:
        return replace(standing, identity="")
    return standing if standing.identity else replace(standing, identity=table.identity)
