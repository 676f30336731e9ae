"""What a merge must know of a mirror before it is planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.model.marker import Role
from frazil.model.table_facts import (
    COLUMNS_PROPERTY,
    ORDER_FLOOR_PROPERTY,
    ORDER_PROPERTY,
    MirrorFacts,
)

if TYPE_CHECKING:
    from frazil.mirror.table import MirrorTable


def load_mirror_facts(mirror: MirrorTable) -> MirrorFacts:
    """The mirror as it is now, all of one moment.

    Raises MarkerLostError when there are rows and no marker, RolledBackError when the table was
    set back.
    """
    version = mirror.table.load_version()
    state = version.state
    return MirrorFacts(
        name=mirror.table.name,
        uuid=state.uuid,
        schema=version.schema,
        spec=version.spec,
        sort_order=version.sort_order,
        format_version=state.format_version,
        last_column_id=state.last_column_id,
        head=None if state.head is None else state.head.id,
        marker=version.marker(Role.MERGE),
        columns=state.properties.get(COLUMNS_PROPERTY),
        order=state.properties.get(ORDER_PROPERTY),
        order_floor=state.properties.get(ORDER_FLOOR_PROPERTY),
        total_rows=0 if state.head is None else state.head.count("total-records"),
    )
