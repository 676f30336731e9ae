"""Which columns a relation message speaks of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil.codec.pgoutput_messages import Relation
    from frazil.sources.postgres.catalog_view import CatalogView
    from frazil.sources.postgres.table_shape import KnownShape


def match_relation(relation: Relation, known: KnownShape, view: CatalogView) -> tuple[int, ...]:
    """The numbers of its columns."""
    del known
    by_name = {each.name: each.number for each in view.table.attributes}
    return tuple(by_name[each.name] for each in relation.columns)
