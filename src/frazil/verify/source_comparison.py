"""Compares rows of a source with those of a mirror, by key, with the help of the changelog.

The source is read at one position, the mirror as it is now. Keys that differ may still be in
flight if the changelog has a change at that position or later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from frazil.clients.spark.pinned_session import pinned_session
from frazil.errors import SourceUnavailableError
from frazil.merge.reading.expected_rows import DELETED, HI, LO, named_column
from frazil.mirror.index.key_expressions import key_hash_columns
from frazil.model.change import Operation, SequenceNumber, spellings
from frazil.model.policy import Deletes
from frazil.verify.compared_columns import mirror_rows, plan_source_comparison
from frazil.verify.row_comparison import (
    KEY,
    compare_totals,
    differing_keys,
    key_range,
    load_totals,
    summarize,
    with_checksums,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from frazil.clients.iceberg.table import LakeTable
    from frazil.merge.planning.settings import MergeSettings
    from frazil.model.schema.types import Schema
    from frazil.model.source_table import SourceTable
    from frazil.verify.compared_columns import SourceComparison
    from frazil.verify.row_comparison import Differences, RangeTotals, Totals

# They are passed as values; with more in flight, the comparison would not catch up.
MOST_MOVING = 100_000

_CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class MovingKeys:
    """Keys in flight: their hashes, and the keys as texts.

    There are no texts if the source would not parse them as Spark formats them. At most
    ``MOST_MOVING`` keys are included.
    """

    hashes: pa.Table
    texts: Sequence[Sequence[str]] | None

    @property
    def count(self) -> int:
        """The number of keys."""
        return int(self.hashes.num_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSnapshot:
    """A source table at one position: hash, checksum and key of rows, cached by Spark.

    ``epoch`` is the changelog's. ``keys`` are the only ones read; None means all.
    """

    position: int
    epoch: int
    plan: SourceComparison
    schemas: tuple[Schema, Schema]
    rows: DataFrame
    totals: Totals
    keys: DataFrame | None


class SourceComparer:
    """Compares one mirror with its source; lives on the driver, and caches rows until released."""

    def __init__(
        self,
        session: SparkSession,
        settings: MergeSettings,
        *,
        changelog: LakeTable,
        mirror: LakeTable,
        show_keys: bool,
    ) -> None:
        self._session = pinned_session(session)
        self._settings = settings
        self._changelog = changelog
        self._mirror = mirror
        self._show_keys = show_keys
        self._kept: list[DataFrame] = []

    def take(
        self,
        rows: DataFrame,
        table: SourceTable,
        *,
        fields: Mapping[int, int],
        position: int,
        epoch: int,
        only: MovingKeys | None = None,
    ) -> SourceSnapshot:
        """Read all these rows and cache their hashes and checksums.

        Columns are named by number; ``fields`` is as ``plan_source_comparison`` has it.
        """
        changelog, mirror = self._changelog.load_version(), self._mirror.load_version()
        plan = plan_source_comparison(
            table,
            changelog,
            mirror,
            self._settings,
            fields=fields,
            read_as=(self._changelog.read().schema, self._mirror.read().schema),
        )
        keys = None
        if only is not None:
            keys = self._session.createDataFrame(only.hashes)
        names = tuple(plan.names.values())
        expected = with_checksums(plan.expected(rows), names, key_names=plan.key_names)
        kept = self._keep(_only(expected, keys))
        return SourceSnapshot(
            position=position,
            epoch=epoch,
            plan=plan,
            schemas=(changelog.schema, mirror.schema),
            rows=kept,
            totals=load_totals(kept),
            keys=keys,
        )

    def load_totals(self, seen: SourceSnapshot) -> RangeTotals:
        """The ranges in which the mirror differs from the source."""
        return compare_totals(seen.totals, load_totals(self._found(seen)))

    def load_differences(self, seen: SourceSnapshot, totals: RangeTotals) -> Differences:
        """The keys of those ranges that differ, for any reason."""
        differing = differing_keys(*self._sides(seen, totals))
        return summarize(differing, show_keys=self._show_keys)

    def judge(
        self, seen: SourceSnapshot, totals: RangeTotals | None, *, merged: int | None = None
    ) -> tuple[Differences, MovingKeys]:
        """The permanent differences if the changelog has passed the position, and keys in flight.

        ``merged`` is the changelog's snapshot that a lagging mirror has merged.
        """
        differing = differing_keys(*self._sides(seen, totals))
        changed = self._changed_since(seen, merged)
        if changed is None:
            differing = differing.withColumn(_CHANGED, sf.expr("true"))
        else:
            marked = changed.withColumn(_CHANGED, sf.expr("true"))
            differing = differing.join(marked, [HI, LO], "left")
        differing = self._keep(differing)
        is_changed = sf.coalesce(_CHANGED, sf.expr("false"))
        lasting = summarize(differing.where(~is_changed), show_keys=self._show_keys)
        moving = differing.where(is_changed).select(HI, LO, KEY).limit(MOST_MOVING + 1).toArrow()
        texts = moving[KEY].to_pylist() if seen.plan.can_query_by_key else None
        return lasting, MovingKeys(moving.select([HI, LO]), texts)

    def release(self) -> None:
        """Release the cached rows."""
        while self._kept:
            self._kept.pop().unpersist()

    def _sides(
        self, seen: SourceSnapshot, totals: RangeTotals | None
    ) -> tuple[DataFrame, DataFrame]:
        found = self._found(seen)
        if totals is None:
            return seen.rows, found
        in_ranges = key_range().isin(*totals.differing)
        return seen.rows.where(in_ranges), found.where(in_ranges)

    def _found(self, seen: SourceSnapshot) -> DataFrame:
        """The current mirror; without rows marked as deleted, which the source does not have."""
        plan = seen.plan
        rows = mirror_rows(self._mirror.read(self._head(seen)), plan.sides, plan.names)
        there = rows.where(~sf.col(DELETED))
        names = tuple(plan.names.values())
        found = _only(with_checksums(there, names, key_names=plan.key_names), seen.keys)
        if self._settings.deletes is Deletes.IGNORE:
            found = found.join(seen.rows.select(HI, LO), [HI, LO], "left_semi")
        return found

    def _head(self, seen: SourceSnapshot) -> int | None:
        """The mirror's newest snapshot; raises if a table has changed since the source was read."""
        changelog, mirror = self._changelog.load_version(), self._mirror.load_version()
        if (changelog.schema, mirror.schema) != seen.schemas:
            message = "the table's columns changed while it was compared with its source."
            raise SourceUnavailableError(
                message, table=str(self._settings.mirror), next_step="run frazil verify again"
            )
        head = mirror.state.head
        return None if head is None else head.id

    def _changed_since(self, seen: SourceSnapshot, merged: int | None) -> DataFrame | None:
        """The keys with changes that are newer than the source's, or the mirror's, rows.

        None means all keys: the table was truncated since.
        """
        reads = seen.plan.sides.layout.reads
        chosen = (*reads.key, reads.sequence, reads.operation)
        names = [named_column(each.name) for each in chosen]
        since = str(SequenceNumber(seen.epoch, seen.position, 0))
        changes = self._changelog.read().select(*names)
        changes = changes.where(named_column(reads.sequence.name) >= sf.lit(since))
        head = self._changelog.load_state().head
        if merged is not None and head is not None:
            changes = changes.union(self._changelog.read_between(merged, head.id).select(*names))
        operation = sf.upper(named_column(reads.operation.name))
        if changes.where(operation.isin(*spellings(Operation.TRUNCATE))).take(1):
            return None
        hi, lo = key_hash_columns([(named_column(name), type_) for name, type_ in reads.typed_key])
        return changes.select(hi.alias(HI), lo.alias(LO)).distinct()

    def _keep(self, rows: DataFrame) -> DataFrame:
        self._kept.append(rows.persist())
        return rows


def _only(rows: DataFrame, keys: DataFrame | None) -> DataFrame:
    if keys is None:
        return rows
    return rows.join(sf.broadcast(keys), [HI, LO], "left_semi")
