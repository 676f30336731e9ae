"""``verify`` against mirrors made by hand: it agrees with the specification, and misses nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from frazil.clients.iceberg.commit.strict_commit import StrictCommit
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from frazil.errors import ForeignChangeError, MarkerLostError, TableReplacedError
from frazil.merge.folding.fold import Change, ChangeAction, TruncateChange, fold
from frazil.merge.merger import Merger
from frazil.merge.planning.settings import IndexSettings, MergeSettings
from frazil.model.marker import Marker, MarkerRole, Override
from frazil.model.policy import Deletes, Order
from frazil.model.table_name import TableName
from frazil.verify.mirror_verifier import NOTHING_MERGED, verify_mirror
from frazil.verify.row_comparison import DifferenceKind, load_differences, load_range_totals
from tests.support.merge.folded_mirror import Row, mirror_after
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.verify.mirror_verifier import Verification

pytestmark = pytest.mark.spark

DOCUMENT = """
pipeline: proofs
catalog:
  name: {catalog}
  kind: sql
  uri: 'sqlite:///{folder}/catalog.db'
  warehouse: 'file://{folder}/warehouse'
tables: [{{mirror: a.b, changelog: a.c, key: [id]}}]
"""
# Ids as Iceberg gives them to a new table: top columns first, in their order.
ID, NAME, PRICE, TAGS = 1, 2, 3, 4
COLUMNS = {ID: "id", NAME: "name", PRICE: "price", TAGS: "tags"}
DATA = [
    StructField("id", LongType()),
    StructField("name", StringType()),
    StructField("price", DecimalType(12, 2)),
    StructField("tags", MapType(StringType(), IntegerType())),
]
CHANGES = StructType(
    [
        *DATA,
        StructField("cdc_operation", StringType()),
        StructField("cdc_sequence_number", StringType()),
        StructField("cdc_unchanged", ArrayType(IntegerType())),
        StructField("cdc_previous_key", StructType([StructField("id", LongType())])),
    ]
)

AnyChange = Change[int, Any] | TruncateChange


@dataclass(frozen=True)
class Proofs:
    """A changelog and a mirror that tests fill as they like."""

    spark: SparkSession
    lake: Lake
    settings: MergeSettings

    def write_changes(self, changes: Iterable[AnyChange]) -> None:
        rows = [as_row(change) for change in changes]
        name = self.settings.changelog.quoted
        self.spark.createDataFrame(rows, CHANGES).writeTo(name).append()

    def write_mirror(self, rows: dict[int, Row[Any]]) -> None:
        name = self.settings.mirror
        columns = "id bigint, name string, price decimal(12,2), tags map<string,int>"
        soft = self.settings.deletes is Deletes.SOFT
        self.spark.sql(f"drop table if exists {name.quoted}")
        flag = ", is_gone boolean" if soft else ""
        self.spark.sql(f"create table {name.quoted} ({columns}{flag}) using iceberg")
        values = [[row.values[each] for each in COLUMNS] for row in rows.values()]
        frame = self.spark.createDataFrame(values, StructType(DATA))
        if soft:
            deleted = [key for key, row in rows.items() if row.deleted]
            frame = frame.withColumn("is_gone", frame["id"].isin(deleted))
        frame.writeTo(name.quoted).append()
        fields = [{"changelog": each, "mirror": each} for each in COLUMNS]
        document = {"version": 1, "key": [1], "fields": fields} | ({"deleted": 5} if soft else {})
        text = str(document).replace("'", '"')
        self.spark.sql(f"alter table {name.quoted} set tblproperties ('frazil.columns'='{text}')")

    def mark(self) -> None:
        """The mirror was merged through the changelog's newest snapshot."""
        changelog = self.lake.open(self.settings.changelog).load_state()
        assert changelog.head is not None
        goal = Marker(
            pipeline="proofs",
            source=changelog.uuid,
            position=str(changelog.head.id),
            batch=f"batch {changelog.head.id}",
        )
        mirror = self.lake.open(self.settings.mirror)
        seen = mirror.load_state().properties.get(MarkerRole.MERGE.property_name)
        mirror.commit(StrictCommit(move=Override(MarkerRole.MERGE, seen, goal)))

    def verify(self, *, show_keys: bool = False) -> Verification:
        return verify_mirror(self.spark, self.lake, self.settings, show_keys=show_keys)

    def alter_mirror(self, statement: str) -> None:
        self.spark.sql(statement.format(mirror=self.settings.mirror.quoted))


def as_row(change: AnyChange) -> tuple[Any, ...]:
    if isinstance(change, TruncateChange):
        return (None, None, None, None, "TRUNCATE", change.sequence, None, None)
    values = [change.values.get(each) for each in COLUMNS]
    operation = "d" if change.action is ChangeAction.DELETE else "Update"
    previous = None if change.previous_key is None else (change.previous_key,)
    unchanged = sorted(change.unchanged) if change.action is ChangeAction.UPSERT else []
    return (*values, operation, change.sequence, unchanged or None, previous)


def upsert(key: int, at: int, **given: Any) -> Change[int, Any]:
    """A change that sends what is given; the rest was not sent."""
    named = {number: given[name] for number, name in COLUMNS.items() if name in given}
    unchanged = frozenset(COLUMNS) - named.keys() - {ID}
    return Change(
        key=key,
        sequence=f"{at:08d}",
        action=ChangeAction.UPSERT,
        values={ID: key, **named},
        unchanged=unchanged,
        previous_key=given.get("previous"),
    )


def complete(key: int, at: int, name: str) -> Change[int, Any]:
    return upsert(key, at, name=name, price=Decimal(at), tags={"at": at})


def delete(key: int, at: int) -> Change[int, Any]:
    return Change(
        key=key,
        sequence=f"{at:08d}",
        action=ChangeAction.DELETE,
        values={ID: key},
        unchanged=frozenset(COLUMNS) - {ID},
    )


@pytest.fixture
def proofs(spark: SparkSession, tmp_path: Path) -> Proofs:
    catalog = f"c_{tmp_path.name}"
    document = tmp_path / "frazil.yaml"
    document.write_text(DOCUMENT.format(folder=tmp_path, catalog=catalog))
    config = load_config(document, environ={}).config
    lake = Lake(attach_session(spark, config), catalog)
    changelog = TableName(catalog, ("public",), "users_changelog")
    lake.ensure_namespace(changelog)
    fields = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in CHANGES)
    spark.sql(f"create table {changelog.quoted} ({fields}) using iceberg")
    settings = MergeSettings(
        changelog=changelog, mirror=TableName(catalog, ("public",), "users"), key=("id",)
    )
    return Proofs(spark, lake, settings)


def fold_of(changes: Sequence[AnyChange], deletes: Deletes) -> dict[int, Row[Any]]:
    """The mirror that the specification makes of an empty one."""
    spoken: list[AnyChange] = []
    for change in sorted(changes, key=lambda each: str(each.sequence)):
        if isinstance(change, TruncateChange) and deletes is Deletes.SOFT:
            met = {each.key for each in spoken if isinstance(each, Change)}
            spoken += [replace(delete(key, 0), sequence=change.sequence) for key in met]
        else:
            spoken.append(change)
    return mirror_after({}, fold(spoken, deletes=deletes))


class Source:
    """A table that changes at random, and says so as our own changelogs do."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._alive: set[int] = set()
        self._at = 0
        self.changes: list[AnyChange] = []

    def run(self, steps: int, *, partial: bool = True) -> Source:
        """So many steps; without partial ones every change sends all columns."""
        actions = [self._write, self._write, self._write, self._delete]
        actions += [self._patch, self._move] if partial else []
        for _ in range(steps):
            self._chance.choice(actions)()
            if self._chance.random() < 0.01:
                self._truncate()
        return self

    def _next(self) -> int:
        self._at += 1
        return self._at

    def _some(self) -> int | None:
        return self._chance.choice(sorted(self._alive)) if self._alive else None

    def _say(self, change: AnyChange) -> None:
        self.changes.append(change)
        if self._chance.random() < 0.05:
            # Delivered twice.
            self.changes.append(change)

    def _write(self) -> None:
        key = self._chance.randrange(60)
        self._alive.add(key)
        self._say(complete(key, self._next(), self._chance.choice(["å", "", "x" * 50])))

    def _patch(self) -> None:
        key = self._some()
        if key is not None:
            given = {"name": None} if self._chance.random() < 0.5 else {"price": Decimal("-1.5")}
            self._say(upsert(key, self._next(), **given))

    def _delete(self) -> None:
        key = self._some()
        if key is not None:
            self._alive.discard(key)
            self._say(delete(key, self._next()))

    def _move(self) -> None:
        old, new = self._some(), self._chance.randrange(60)
        if old is not None and new not in self._alive:
            self._alive ^= {old, new}
            self._say(delete(old, self._next()))
            given = {"name": "moved"} if self._chance.random() < 0.5 else {}
            self._say(upsert(new, self._next(), previous=old, **given))

    def _truncate(self) -> None:
        self._alive.clear()
        self._say(TruncateChange(f"{self._next():08d}"))


@pytest.mark.parametrize("deletes", Deletes)
@pytest.mark.parametrize("seed", sampled(range(3), ci={0}))
def test_a_mirror_that_the_specification_made_agrees(
    proofs: Proofs, seed: int, deletes: Deletes
) -> None:
    proofs = replace(proofs, settings=replace(proofs.settings, deletes=deletes))
    changes = Source(seed).run(300).changes
    random.Random(seed).shuffle(changes)  # noqa: S311 - repeatable on purpose
    proofs.write_changes(changes[:100])
    proofs.write_changes(changes[100:])
    mirror = fold_of(changes, deletes)
    proofs.write_mirror(mirror)
    proofs.mark()
    found = proofs.verify()
    assert found.agrees, found
    assert (found.rows_expected, found.rows_found) == (len(mirror), len(mirror))
    assert (found.unjudged, found.note, found.left_out) == (0, "", ())
    assert found.columns == tuple(COLUMNS.values())


@pytest.mark.parametrize(
    ("order", "deletes"),
    [
        (Order.APPEND, Deletes.APPLY),
        (Order.APPEND, Deletes.IGNORE),
        (Order.PER_KEY, Deletes.SOFT),
        pytest.param(Order.APPEND, Deletes.SOFT, marks=pytest.mark.deep),
        pytest.param(Order.PER_KEY, Deletes.APPLY, marks=pytest.mark.deep),
        pytest.param(Order.PER_KEY, Deletes.IGNORE, marks=pytest.mark.deep),
    ],
)
def test_a_mirror_that_merges_made_agrees(
    proofs: Proofs, tmp_path: Path, order: Order, deletes: Deletes
) -> None:
    settings = replace(
        proofs.settings,
        order=order,
        deletes=deletes,
        max_rows=60,
        index=IndexSettings(cache_dir=tmp_path / "cache"),
    )
    proofs = replace(proofs, settings=settings)
    # With order per_key changes that leave columns out are refused.
    changes = Source(7).run(200, partial=order is Order.APPEND).changes
    if order is Order.PER_KEY:
        random.Random(7).shuffle(changes)  # noqa: S311 - repeatable on purpose
    ends = [at for at in range(40, len(changes), 40) if not is_inside(changes, at)]
    for start, end in pairwise([0, *ends, len(changes)]):
        proofs.write_changes(changes[start:end])
    report = Merger(proofs.spark, proofs.lake, settings).merge()
    assert len(report.commits) > 1
    found = proofs.verify()
    assert found.agrees, found
    assert found.rows_found > 0
    assert (found.unjudged, found.left_out) == (0, ())
    assert ("cdc_sequence_number" in found.columns) == (order is Order.PER_KEY)
    # A delete that came before its row leaves none, and one that came after keeps what was there.
    is_by_arrival = order is Order.PER_KEY and deletes is Deletes.SOFT
    assert ("the values of deleted rows are not compared" in found.note) == is_by_arrival
    mirror = proofs.spark.table(settings.mirror.quoted)
    live = mirror.where("not cdc_deleted") if deletes is Deletes.SOFT else mirror
    alive = {key for key, row in fold_of(changes, deletes).items() if not row.deleted}
    assert {row.id for row in live.collect()} == alive


def is_inside(changes: Sequence[AnyChange], at: int) -> bool:
    """Whether a key change, which is one transaction, would be cut in two here."""
    change = changes[at]
    return isinstance(change, Change) and change.previous_key is not None


def test_every_kind_of_difference_is_found_and_reported_by_hash(proofs: Proofs) -> None:
    changes: list[AnyChange] = [complete(key, key, f"n{key}") for key in range(1, 41)]
    proofs.write_changes(changes)
    proofs.write_mirror(fold_of(changes, Deletes.APPLY))
    proofs.mark()
    assert proofs.verify().agrees
    proofs.alter_mirror("delete from {mirror} where id = 7")
    proofs.alter_mirror("update {mirror} set name = null where id = 8")
    proofs.alter_mirror("update {mirror} set tags = map('at', 10) where id = 9")
    proofs.alter_mirror("insert into {mirror} values (99, 'foreign', 1, null)")
    proofs.alter_mirror("insert into {mirror} select * from {mirror} where id = 10")
    found = proofs.verify()
    assert not found.agrees
    assert (found.missing, found.surplus, found.different) == (1, 2, 2)
    assert 3 <= found.differing_ranges <= 5
    assert [each.kind for each in found.samples] == [
        DifferenceKind.DIFFERENT,
        DifferenceKind.DIFFERENT,
        DifferenceKind.MISSING,
        DifferenceKind.SURPLUS,
        DifferenceKind.SURPLUS,
    ]
    assert all(len(each.key_hash) == 32 and each.key is None for each in found.samples)
    shown = proofs.verify(show_keys=True)
    assert sorted((each.kind.value, each.key) for each in shown.samples) == [
        ("different", "8"),
        ("different", "9"),
        ("missing", "7"),
        ("surplus", "10"),
        ("surplus", "99"),
    ]


def test_a_row_whose_key_is_null_is_found(spark: SparkSession) -> None:
    schema = "hi long, lo long, checksum long, key array<string>"
    expected = spark.createDataFrame([(1, 0, 5, ["1"])], schema)
    found = spark.createDataFrame([(1, 0, 5, ["1"]), (None, None, 7, [None])], schema)
    totals = load_range_totals(expected, found)
    assert (totals.expected, totals.found, len(totals.differing)) == (1, 2, 1)
    surplus = load_differences(expected, found, totals.differing, show_keys=True)
    assert [(each.kind, each.key) for each in surplus.samples] == [(DifferenceKind.SURPLUS, "null")]


def test_a_null_that_moved_to_the_next_column_is_a_difference(proofs: Proofs) -> None:
    changes: list[AnyChange] = [upsert(1, 1, name=None, price=Decimal(1), tags=None)]
    proofs.write_changes(changes)
    proofs.write_mirror(fold_of([upsert(1, 1, name=None, price=None, tags={})], Deletes.APPLY))
    proofs.mark()
    assert proofs.verify().different == 1


def test_only_what_was_merged_is_expected(proofs: Proofs) -> None:
    merged: list[AnyChange] = [complete(1, 1, "one")]
    proofs.write_changes(merged)
    proofs.write_mirror(fold_of(merged, Deletes.APPLY))
    proofs.mark()
    proofs.write_changes([complete(2, 2, "two"), delete(1, 3)])
    assert proofs.verify().agrees


def test_columns_are_matched_by_id_after_a_rename(proofs: Proofs) -> None:
    changes: list[AnyChange] = [complete(1, 1, "one"), complete(2, 2, "two")]
    proofs.write_changes(changes)
    proofs.write_mirror(fold_of(changes, Deletes.APPLY))
    proofs.mark()
    changelog = proofs.settings.changelog.quoted
    proofs.spark.sql(f"alter table {changelog} rename column name to label")
    proofs.spark.sql(f"alter table {changelog} add column name string")
    proofs.alter_mirror("alter table {mirror} add column theirs int")
    found = proofs.verify()
    assert found.agrees
    assert found.columns == tuple(COLUMNS.values())


def test_removed_rows_of_the_changelog_are_refused_with_a_reason(proofs: Proofs) -> None:
    changes: list[AnyChange] = [complete(1, 1, "one"), complete(2, 2, "two")]
    proofs.write_changes(changes)
    proofs.spark.sql(f"delete from {proofs.settings.changelog.quoted} where id = 1")
    proofs.write_mirror(fold_of(changes, Deletes.APPLY))
    proofs.mark()
    with pytest.raises(ForeignChangeError, match=r"history is not complete: snapshot .* removed"):
        proofs.verify()


def test_a_compacted_and_expired_changelog_is_still_complete(proofs: Proofs) -> None:
    changes: list[AnyChange] = [complete(key, key, "x") for key in range(1, 5)]
    for change in changes:
        proofs.write_changes([change])
    catalog = proofs.settings.changelog.catalog
    proofs.spark.sql(
        f"call {catalog}.system.rewrite_data_files(table => 'public.users_changelog', "
        "options => map('rewrite-all', 'true'))"
    )
    proofs.write_mirror(fold_of(changes, Deletes.APPLY))
    proofs.mark()
    proofs.spark.sql(
        f"call {catalog}.system.expire_snapshots(table => 'public.users_changelog', "
        "older_than => timestamp '2999-01-01', retain_last => 1)"
    )
    found = proofs.verify()
    assert found.agrees
    assert "are expired" in found.note


def test_a_mirror_that_was_never_merged_is_not_judged(proofs: Proofs) -> None:
    proofs.write_changes([complete(1, 1, "one")])
    name = proofs.settings.mirror.quoted
    proofs.spark.sql(f"create table {name} (id bigint) using iceberg")
    assert proofs.verify().note == NOTHING_MERGED
    proofs.spark.sql(f"insert into {name} values (1)")
    with pytest.raises(MarkerLostError):
        proofs.verify()


def test_another_changelog_of_the_same_name_is_refused(proofs: Proofs) -> None:
    changes: list[AnyChange] = [complete(1, 1, "one")]
    proofs.write_changes(changes)
    proofs.write_mirror(fold_of(changes, Deletes.APPLY))
    proofs.mark()
    name = proofs.settings.changelog.quoted
    fields = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in CHANGES)
    proofs.spark.sql(f"drop table {name}")
    proofs.spark.sql(f"create table {name} ({fields}) using iceberg")
    with pytest.raises(TableReplacedError):
        proofs.verify()
