"""Reads merged changes from the changelog again: deletes to remember, and possible replays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from frazil.merge.planning.changelog_columns import plan_columns, settings_at
from frazil.merge.reading.changelog_reader import ReadLayout, latest_deletes, prepare_changes
from frazil.model.schema.types import Fixed, List, Map, Primitive, Struct, children
from frazil.model.table_facts import SnapshotOperation
from frazil.model.table_name import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from frazil.changelog.table import ChangelogTable
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
    from frazil.clients.iceberg.table import TableVersion
    from frazil.merge.planning.settings import MergeSettings
    from frazil.model.schema.types import Field, Scalar, Schema

# The metadata column that Iceberg adds to every table.
_FILE = "_file"


def remembered_deletes(
    changelog: ChangelogTable,
    merged_through: int,
    settings: MergeSettings,
    key_types: Sequence[Scalar],
) -> DataFrame:
    """Hash and sequence of the keys whose newest merged change is a DELETE.

    Only merged changes count: a delete that is not merged yet must not make itself late.
    """
    version = changelog.table.load_version()
    oldest, schema = _oldest(version, merged_through)
    named = settings_at(settings, now=version.schema, then=schema)
    columns = plan_columns(schema, named)
    layout = ReadLayout(
        key=tuple(zip((each.name for each in columns.key), key_types, strict=True)),
        sequence=columns.sequence.name,
        operation=columns.operation.name,
        unchanged=None,
        previous_key=None,
        mappings=(),
        unchanged_ids={},
    )
    return latest_deletes(prepare_changes(_merged(changelog, oldest, merged_through), layout))


def merged_changes(changelog: ChangelogTable, merged_through: int, now: Schema) -> DataFrame:
    """All rows up to the snapshot that was merged last, as the schema ``now`` shows them."""
    version = changelog.table.load_version()
    oldest, then = _oldest(version, merged_through)
    before = {each.id: each for each in then.fields}
    rows = _merged(changelog, oldest, merged_through)
    types = {each.name: each.dataType for each in changelog.table.read().limit(0).schema}
    columns = []
    for each in now.fields:
        old = before.get(each.id)
        column = None if old is None else sf.col(quote(old.name))
        columns.append(_as_shown(each, old, column).cast(types[each.name]).alias(each.name))
    return rows.select(*columns)


def _as_shown(now: Field, then: Field | None, column: Column | None) -> Column:
    """The values of a field as a later schema shows them: members go by id, younger ones default.

    Types of values are left to a cast of the whole.
    """
    if then is None or column is None:
        return _default(now)
    if now.type == then.type:
        return column
    inside = {each.id: each for each in children(then.type)}
    match now.type:
        case Struct(fields):
            members = []
            for each in fields:
                old = inside.get(each.id)
                part = None if old is None else column[old.name]
                members.append(_as_shown(each, old, part).alias(each.name))
            return sf.when(column.isNotNull(), sf.struct(*members))
        case List(element):
            return sf.transform(column, lambda each: _as_shown(element, inside[element.id], each))
        case Map(_, value):
            # Keys of a map never change.
            return sf.transform_values(
                column, lambda _, each: _as_shown(value, inside[value.id], each)
            )
        case _:
            return column


def _default(field: Field) -> Column:
    """What a row has that is older than the column."""
    literal = sf.lit(field.initial_default)
    return (
        sf.unhex(literal)
        if isinstance(field.type, Fixed) or field.type is Primitive.BINARY
        else literal
    )


def _oldest(version: TableVersion, merged_through: int) -> tuple[SnapshotFacts, Schema]:
    """The snapshot merged last, or the one after it, and the schema it is read with."""
    oldest = version.history(until=merged_through)[-1]
    # Reading as of that snapshot uses the column names of that time.
    schema = version.schema if oldest.schema_id is None else version.schema_of(oldest.schema_id)
    return oldest, schema


def _merged(changelog: ChangelogTable, oldest: SnapshotFacts, merged_through: int) -> DataFrame:
    """The rows up to the snapshot that was merged last, which may be expired.

    ``oldest`` is then the one after it: no merge is planned when more than that is expired.
    """
    rows = changelog.read_planned(None, oldest.id)
    if oldest.id == merged_through or oldest.operation is not SnapshotOperation.APPEND:
        return rows
    added = changelog.read_planned(merged_through, oldest.id).select(_FILE).distinct()
    return rows.select("*", _FILE).join(added, _FILE, "left_anti").drop(_FILE)
