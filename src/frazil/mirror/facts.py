"""Loads the facts about a mirror that a merge is planned from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import MarkerLostError, RolledBackError
from frazil.model.marker import MarkerRole
from frazil.model.table_facts import (
    COLUMNS_PROPERTY,
    DEFAULT_SEQUENCE_PROPERTY,
    ORDER_PROPERTY,
    MirrorFacts,
)

if TYPE_CHECKING:
    from frazil.errors import FrazilError
    from frazil.mirror.table import MirrorTable


def load_mirror_facts(mirror: MirrorTable) -> MirrorFacts:
    """The current version of the mirror; an invalid marker becomes a fact, not an error."""
    version = mirror.table.load_version()
    state = version.state
    problem: FrazilError | None = None
    try:
        marker = state.marker(MarkerRole.MERGE, table=str(mirror.table.name))
        version.marker(MarkerRole.MERGE)
    except RolledBackError as error:
        problem = error
    except MarkerLostError as error:
        # Its snapshots may still show how far it was merged.
        marker, problem = mirror.recoverable_marker(), error
    return MirrorFacts(
        name=mirror.table.name,
        uuid=state.uuid,
        schema=version.schema,
        spec=version.spec,
        sort_order=version.sort_order,
        format_version=state.format_version,
        last_column_id=state.last_column_id,
        head=None if state.head is None else state.head.id,
        marker=marker,
        columns=state.properties.get(COLUMNS_PROPERTY),
        order=state.properties.get(ORDER_PROPERTY),
        # Empty if a restart removed it.
        default_sequence=state.properties.get(DEFAULT_SEQUENCE_PROPERTY) or None,
        total_rows=0 if state.head is None else state.head.count("total-records"),
        marker_text=state.properties.get(MarkerRole.MERGE.property_name),
        problem=problem,
    )
