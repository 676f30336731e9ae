"""Whether a table is still the one that a snapshot has, which the server does not check.

Names in a query mean what they mean now, whatever snapshot it runs in. And the rows of a table that
was written again since, by a change of a column's type or by TRUNCATE, are in no older snapshot:
there the table is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from frazil.clients.postgres.session import Session
    from frazil.model.postgres.names import QualifiedName

# What the catalog's tables say is as of the snapshot; what its functions say is as of now.
_COLUMNS = """
select a.attname, a.attnum, c.relfilenode = pg_relation_filenode(c.oid)
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where c.oid = to_regclass(%(quoted)s)
  and c.relname = %(name)s
  and n.nspname = %(schema)s
"""


class _ColumnRow(NamedTuple):
    name: str | None
    number: int | None
    is_same_file: bool


def load_snapshot_columns(session: Session, relation: QualifiedName) -> dict[str, int] | None:
    """The numbers of a table's columns by their names in the session's snapshot.

    None when the table of this name is another one by now, or was written again. The session must
    have read from the table before: then it is locked against changes.
    """
    parameters = {"quoted": relation.quoted, "name": relation.name, "schema": relation.schema}
    rows = session.load(_ColumnRow, _COLUMNS, parameters, doing="loading a table's columns")
    if not rows or not all(row.is_same_file for row in rows):
        return None
    return {row.name: row.number for row in rows if row.name is not None and row.number is not None}
