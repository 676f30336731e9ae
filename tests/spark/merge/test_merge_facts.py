"""Facts loaded from real tables are right, and the planned changes are what they become."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from frazil import errors
from frazil.changelog.layout import changelog_schema
from frazil.changelog.table import ChangelogTable, load_changelog_facts
from frazil.clients.iceberg.commit.strict_commit import FileChanges
from frazil.clients.iceberg.lake import TableDefinition
from frazil.merge.planning.plan import plan_merge
from frazil.merge.planning.schema_mapping import plan_schema
from frazil.merge.planning.settings import MergeSettings
from frazil.mirror.table import MirrorTable, load_mirror_facts
from frazil.model.marker import Marker
from frazil.model.policy import Deletes
from frazil.model.schema.partitioning import UNPARTITIONED, UNSORTED
from frazil.model.schema.types import Decimal, Field, Primitive, Schema, Struct, list_of, map_of
from frazil.model.table_facts import COLUMNS_PROPERTY, MirrorFacts
from frazil.model.table_name import TableName
from tests.support.lake.catalogs import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from frazil.merge.planning.plan import MergePlan
    from tests.support.lake.catalogs import LakeCase

pytestmark = pytest.mark.spark

P = Primitive
INNER = Struct((Field(0, "x", P.FLOAT), Field(0, "deep", Struct((Field(0, "y", P.INT),)))))
NESTED = (
    Field(0, "point", INNER),
    Field(0, "id", P.INT),
    Field(0, "tags", list_of(0, Struct((Field(0, "a", P.STRING), Field(0, "b", P.DATE))))),
    Field(0, "sizes", map_of(0, P.STRING, 0, list_of(0, P.LONG))),
    Field(0, "price", Decimal(9, 2)),
)
# The least a foreign changelog has, and a day to remove it by.
FOREIGN = "id bigint, day int, op string, seq bigint"


@dataclass(frozen=True)
class Shop:
    """A catalog, and tables in it that are written with plain SQL as another engine would."""

    case: LakeCase
    version: int
    spark: SparkSession

    def name(self) -> TableName:
        return TableName(self.case.catalog, ("shop",), f"t_{uuid4().hex[:12]}")

    def foreign_changelog(self) -> Foreign:
        name = self.name()
        self.case.lake.ensure_namespace(name)
        self.spark.sql(
            f"create table {name.quoted} ({FOREIGN}) using iceberg partitioned by (day) "
            f"tblproperties ('format-version' = '{self.version}')"
        )
        settings = MergeSettings(
            changelog=name, mirror=self.name(), key=("id",), sequence="seq", operation="op"
        )
        return Foreign(self, ChangelogTable.open(self.case.lake, name), settings)


@dataclass(frozen=True)
class Foreign:
    """A foreign changelog; day N holds the ids from 10 N on."""

    shop: Shop
    table: ChangelogTable
    settings: MergeSettings

    def sql(self, text: str) -> None:
        self.shop.spark.sql(text.format(t=self.settings.changelog.quoted))

    def call(self, procedure: str, arguments: str = "") -> None:
        name = self.settings.changelog
        self.sql(f"call {name.catalog}.system.{procedure}(table => '{name}'{arguments})")

    def insert(self, *days: int) -> list[int]:
        """One snapshot a day; returns the ids of all snapshots, oldest first."""
        for day in days:
            self.sql(f"insert into {{t}} select 10 * {day} + id, {day}, 'I', id from range(2)")
        return self.snapshots()

    def snapshots(self) -> list[int]:
        return [each.id for each in reversed(self.table.table.load_ancestry())]

    def plan(self, after: int | None) -> MergePlan | None:
        facts = load_changelog_facts(self.table, after=after)
        mirror = None if after is None else self.mirror(after)
        return plan_merge(facts, mirror, self.settings)

    def mirror(self, after: int) -> MirrorFacts:
        """A mirror that would have merged through this snapshot."""
        table = self.table.table
        schema = plan_schema(table.load_schema(), None, None, self.settings)
        source = table.load_state().uuid
        return MirrorFacts(
            name=self.settings.mirror,
            uuid="mirror",
            schema=schema.mirror,
            spec=UNPARTITIONED,
            sort_order=UNSORTED,
            format_version=self.shop.version,
            last_column_id=2,
            head=1,
            marker=Marker(pipeline="tests", source=source, position=str(after), batch="b"),
            columns=schema.columns,
            total_rows=1,
        )


@pytest.fixture(
    scope="module",
    params=[(Kind.SQLITE_FILE, 2), (Kind.REST_S3, 3)],
    ids=lambda pair: f"{pair[0]} v{pair[1]}",
)
def shop(
    request: pytest.FixtureRequest, spark: SparkSession, lake_of: Callable[[Kind], LakeCase]
) -> Shop:
    kind, version = request.param
    return Shop(lake_of(kind), version, spark)


def ids(rows: DataFrame) -> list[int]:
    return sorted(row.id for row in rows.select("id").collect())


def read(changelog: Foreign, plan: MergePlan | None) -> list[int]:
    assert plan is not None
    return ids(changelog.table.table.read_planned(plan.after, plan.through))


def test_a_mirror_gets_the_ids_that_were_planned_at_any_depth_and_follows_by_them(
    shop: Shop,
) -> None:
    settings = MergeSettings(
        changelog=shop.name(),
        mirror=shop.name(),
        key=("id",),
        deletes=Deletes.SOFT,
        format_version=shop.version,
        partition_by=("bucket(4, id)",),
        sort_by=("price desc",),
    )
    schema = changelog_schema(NESTED, ["id"])
    changelog = ChangelogTable.ensure(
        shop.case.lake, settings.changelog, schema=schema, format_version=shop.version
    )
    assert plan_merge(load_changelog_facts(changelog, after=None), None, settings) is None
    at = Marker(pipeline="tests", source="s", position="1", batch="b1")
    changelog.append([], start=None, goal=at)
    plan = plan_merge(load_changelog_facts(changelog, after=None), None, settings)
    assert plan is not None
    mirror = made(shop, plan)
    found = load_mirror_facts(mirror)
    assert (found.schema, found.spec, found.sort_order) == (
        plan.schema.mirror,
        plan.spec,
        plan.sort_order,
    )
    commit(mirror, plan, "m1")
    current = changelog.table.load_schema()
    changelog.evolve(evolved(current), start="1", goal=replace(at, position="2", batch="b2"))
    merged = load_mirror_facts(mirror)
    assert merged.marker is not None
    after = int(str(merged.marker.position))
    second = plan_merge(load_changelog_facts(changelog, after=after), merged, settings)
    assert second is not None
    assert set(second.schema.changes) == {
        "point.deep.y becomes long, and was int",
        "point.deep.z is added as string",
        "id becomes long, and was int",
        "price is renamed to cost",
        "more is added as list<struct<p: int>>",
    }
    commit(mirror, second, "m2")
    final = load_mirror_facts(mirror)
    assert final.schema.fields == second.schema.mirror.fields
    assert final.columns == second.schema.columns
    assert (
        plan_merge(load_changelog_facts(changelog, after=second.through), final, settings) is None
    )
    # Spark refuses tables with a column called like one of Iceberg's own.
    assert mirror.table.read().columns[-1] == "cdc_deleted"
    assert mirror.table.read().collect() == []


def evolved(schema: Schema) -> Schema:
    """Widened, renamed, reordered and grown, also inside."""
    fields = {each.name: each for each in schema.fields}
    last = max(each.field.id for each in schema.columns())
    point = fields["point"].type
    assert isinstance(point, Struct)
    x, deep = point.fields
    assert isinstance(deep.type, Struct)
    inside = (replace(deep.type.fields[0], type=P.LONG), Field(last + 1, "z", P.STRING))
    new = Field(last + 2, "more", list_of(last + 3, Struct((Field(last + 4, "p", P.INT),))))
    changed = {
        "point": replace(fields["point"], type=Struct((x, replace(deep, type=Struct(inside))))),
        "id": replace(fields["id"], type=P.LONG),
        "price": replace(fields["price"], name="cost"),
    }
    first, *rest = (changed.get(each.name, each) for each in schema.fields)
    return replace(schema, fields=(first, new, *rest))


def made(shop: Shop, plan: MergePlan) -> MirrorTable:
    new = plan.creates
    assert new is not None
    definition = TableDefinition(
        schema=new.schema,
        spec=new.spec,
        sort_order=new.sort_order,
        format_version=new.format_version,
    )
    return MirrorTable.ensure(shop.case.lake, plan.mirror, definition)


def commit(mirror: MirrorTable, plan: MergePlan, batch: str) -> None:
    goal = Marker(pipeline="tests", source=plan.source, position=str(plan.through), batch=batch)
    mirror.apply(
        FileChanges(),
        start=plan.start,
        goal=goal,
        planned_on=plan.head,
        schema=plan.schema.wanted,
        properties={COLUMNS_PROPERTY: plan.schema.columns},
    )


def test_snapshots_are_counted_as_their_summaries_count_them(shop: Shop) -> None:
    changelog = shop.foreign_changelog()
    first, second = changelog.insert(1, 2)
    table = changelog.table.table
    at_once = table._reader.all_snapshots(table._refreshed())
    assert at_once == {each.id: each for each in table.load_version().history()}
    facts = load_changelog_facts(changelog.table, after=first)
    assert [(each.id, each.parent) for each in facts.snapshots] == [(first, None), (second, first)]
    newest = facts.snapshots[-1]
    assert (newest.sequence, newest.added_rows, newest.total_rows) == (2, 2, 4)
    assert (newest.removes, newest.incomplete, newest.schema_id) == (False, False, 0)
    assert newest.added_bytes > 0
    assert newest.committed_at > 1_700_000_000_000
    assert [each.id for each in load_changelog_facts(changelog.table, after=second).snapshots] == [
        second
    ]


def test_a_compaction_is_skipped_and_retention_of_what_was_merged_as_well(shop: Shop) -> None:
    changelog = shop.foreign_changelog()
    first, second = changelog.insert(1, 2)
    changelog.call("rewrite_data_files", ", options => map('rewrite-all', 'true')")
    changelog.insert(3)
    changelog.sql("delete from {t} where day = 1")
    *_, third, removal = changelog.snapshots()
    assert read(changelog, changelog.plan(second)) == [30, 31]
    # Compacted after the marker, yet with rows of before it: their age is what counts.
    facts = load_changelog_facts(changelog.table, after=second)
    assert facts.retention_of == {removal: 2}
    assert read(changelog, changelog.plan(third)) == []
    with pytest.raises(errors.ForeignChangeError, match=str(removal)):
        changelog.plan(first)
    with pytest.raises(errors.ForeignChangeError):
        changelog.table.table.read_between(second, removal)


def test_expiry_up_to_the_marker_leaves_all_that_is_needed(shop: Shop) -> None:
    changelog = shop.foreign_changelog()
    first, second, _, fourth = changelog.insert(1, 2, 3, 4)
    changelog.call("expire_snapshots", f", snapshot_ids => array({first}, {second})")
    assert read(changelog, changelog.plan(second)) == [30, 31, 40, 41]
    assert ids(changelog.table.table.read_between(second, fourth)) == [30, 31, 40, 41]
    with pytest.raises(errors.PositionLostError, match=f"snapshot {first}"):
        changelog.plan(first)
    # The first merge of all takes the rows of expired snapshots as well.
    assert read(changelog, changelog.plan(None)) == [10, 11, 20, 21, 30, 31, 40, 41]


def test_an_overwrite_and_rows_deleted_one_by_one_are_refused(shop: Shop) -> None:
    changelog = shop.foreign_changelog()
    first, _ = changelog.insert(1, 2)
    changelog.sql("alter table {t} set tblproperties ('write.delete.mode' = 'merge-on-read')")
    changelog.sql("delete from {t} where id = 20")
    with pytest.raises(errors.ForeignChangeError, match="removed changes"):
        changelog.plan(first)
    *_, removal = changelog.insert(3)[:3]
    assert read(changelog, changelog.plan(removal)) == [30, 31]
    changelog.sql("insert overwrite {t} values (90, 9, 'I', 1)")
    *_, overwrite = changelog.snapshots()
    with pytest.raises(errors.ForeignChangeError, match=f"{overwrite} is an overwrite"):
        changelog.plan(removal)
    with pytest.raises(errors.ForeignChangeError, match=f"{overwrite} replaced changes"):
        changelog.plan(None)


def test_a_full_read_as_of_an_older_schema_has_the_names_that_were_planned(shop: Shop) -> None:
    changelog = shop.foreign_changelog()
    changelog.insert(1)
    changelog.sql("alter table {t} rename column day to on_day")
    changelog.sql("alter table {t} add column note string")
    settings = replace(changelog.settings, partition_by=("on_day",))
    plan = replace(changelog, settings=settings).plan(None)
    assert plan is not None
    rows = changelog.table.table.read_planned(plan.after, plan.through)
    assert rows.columns == [each.name for each in plan.changelog_schema.fields]
    assert [source for _, source in plan.schema.projection] == ["id", "day"]
    changelog.sql("insert into {t} values (20, 2, 'I', 1, 'n')")
    newest = replace(changelog, settings=settings).plan(None)
    assert newest is not None
    later = changelog.table.table.read_planned(plan.through, newest.through)
    assert later.columns == ["id", "on_day", "op", "seq", "note"]
    assert [source for _, source in newest.schema.projection] == ["id", "on_day", "note"]
