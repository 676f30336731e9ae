"""Deleted keys that no data file holds: an index with sequences takes them from the changelog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.merge.changelog_columns import plan_columns, settings_at
from frazil.merge.reading import ReadLayout, latest_deletes, prepare_changes
from frazil.model.table_facts import SnapshotOperation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from frazil.changelog.table import ChangelogTable
    from frazil.clients.iceberg.table_state import SnapshotFacts
    from frazil.merge.settings import MergeSettings
    from frazil.model.schema import Scalar

# The metadata column that Iceberg adds to every table.
_FILE = "_file"


def remembered_deletes(
    changelog: ChangelogTable,
    merged_through: int,
    settings: MergeSettings,
    key_types: Sequence[Scalar],
) -> DataFrame:
    """Hash and sequence of the keys whose newest merged change is a DELETE.

    Only what was merged counts: a delete that is still to come must not be taken for a late one.
    """
    version = changelog.table.load_version()
    history = version.history(until=merged_through)
    oldest = history[-1]
    # As of that snapshot the changelog is read under the names it had then.
    schema = version.schema if oldest.schema_id is None else version.schema_of(oldest.schema_id)
    named = settings_at(settings, now=version.schema, then=schema)
    columns = plan_columns(schema, named)
    layout = ReadLayout(
        key=tuple(zip((each.name for each in columns.key), key_types, strict=True)),
        sequence=columns.sequence.name,
        operation=columns.operation.name,
        unchanged=None,
        previous_key=None,
        feeds=(),
        unchanged_ids={},
    )
    return latest_deletes(prepare_changes(_merged(changelog, oldest, merged_through), layout))


def _merged(changelog: ChangelogTable, oldest: SnapshotFacts, merged_through: int) -> DataFrame:
    """The rows up to the snapshot that was merged last, which may just have been expired.

    ``oldest`` is then the one after it: no merge is planned when more than that is gone.
    """
    rows = changelog.read_planned(None, oldest.id)
    if oldest.id == merged_through or oldest.operation is not SnapshotOperation.APPEND:
        return rows
    added = changelog.read_planned(merged_through, oldest.id).select(_FILE).distinct()
    return rows.select("*", _FILE).join(added, _FILE, "left_anti").drop(_FILE)
