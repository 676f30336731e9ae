"""The first merge of a table, the mirror it makes, and the plan as people read it."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil import errors
from frazil.clients.iceberg.write.row_order import RowOrder
from frazil.merge.planning.plan import describe, plan_bits, plan_document, plan_merge
from frazil.model.policy import Deletes, OnDrop, Order
from frazil.model.schema.partitioning import UNPARTITIONED, UNSORTED
from frazil.model.schema.types import Field, Primitive
from tests.unit.merge.planning.plan_facts import (
    DELETE,
    OVERWRITE,
    SCHEMA,
    SETTINGS,
    appends,
    changelog,
    merged_through,
    mirror,
    planned,
    snapshot,
    taken,
)

P = Primitive
MIB = 2**20


def test_the_first_merge_reads_everything_as_of_a_snapshot() -> None:
    plan = planned(changelog(*appends(10, 20, 30)))
    assert taken(plan) == (None, 3, 60, 0)
    assert plan is not None
    assert (plan.start, plan.head, plan.bytes, plan.snapshots) == (None, None, 6000, 3)
    assert plan.creates is not None
    assert plan.creates.schema == plan.schema.mirror
    assert (plan.creates.spec, plan.creates.sort_order) == (UNPARTITIONED, UNSORTED)


def test_the_first_merge_of_a_changelog_with_expired_snapshots_counts_what_is_there() -> None:
    lines = (replace(snapshot(7), total_rows=80), replace(snapshot(8), total_rows=90))
    facts = replace(changelog(), snapshots=lines)
    assert taken(planned(facts)) == (None, 8, 90, 0)


def test_the_first_merge_takes_the_newest_snapshot_within_max_rows() -> None:
    assert taken(planned(changelog(*appends(40, 60, 1)))) == (None, 2, 100, 1)


def test_the_first_merge_takes_the_oldest_complete_snapshot_if_all_are_larger() -> None:
    lines = (snapshot(1, rows=200, incomplete=True), snapshot(2, rows=200), snapshot(3))
    assert taken(planned(changelog(*lines))) == (None, 2, 400, 1)


def test_an_empty_mirror_without_a_marker_is_merged_into_as_it_is() -> None:
    there = mirror(None, total_rows=0, head=None)
    plan = plan_merge(changelog(*appends(10)), there, SETTINGS)
    assert taken(plan) == (None, 1, 10, 0)
    assert plan is not None
    assert (plan.creates, plan.start, plan.head) == (None, None, None)


def test_a_changelog_without_snapshots_is_nothing_to_merge() -> None:
    assert planned(changelog()) is None


def test_the_first_merge_starts_at_or_after_the_last_removal() -> None:
    lines = (*appends(10, 10), snapshot(3, DELETE), snapshot(4, rows=500))
    assert taken(planned(changelog(*lines))) == (None, 3, 20, 1)


def test_a_delete_that_removed_nothing_does_not_move_the_first_merge() -> None:
    harmless = replace(snapshot(2, DELETE), removes=False)
    facts = changelog(snapshot(1), harmless, snapshot(3, rows=500), snapshot(4, incomplete=True))
    settings = replace(SETTINGS, max_rows=5)
    assert taken(planned(facts, settings=settings)) == (None, 1, 10, 3)


def test_a_table_created_by_create_or_replace_as_select_is_read_like_any_other() -> None:
    created = replace(snapshot(1, OVERWRITE), added_rows=10)
    assert taken(planned(changelog(created, snapshot(2)))) == (None, 2, 10, 0)


def test_rows_replaced_before_the_first_merge_stop_it_with_the_next_step() -> None:
    facts = changelog(snapshot(1), snapshot(2, OVERWRITE, removes=True), snapshot(3))
    with pytest.raises(errors.ForeignChangeError, match="snapshot 2 replaced changes") as refused:
        planned(facts)
    assert "expire its snapshots" in str(refused.value)


def test_the_first_merge_reads_an_old_snapshot_under_the_names_it_had() -> None:
    renamed = {1: "user_id", 3: "seen_at", 4: "op"}
    now = replace(
        SCHEMA,
        schema_id=1,
        fields=tuple(replace(each, name=renamed.get(each.id, each.name)) for each in SCHEMA.fields),
    )
    lines = (snapshot(1, rows=90), replace(snapshot(2, rows=90), schema_id=1))
    facts = changelog(*lines, schema=now, schemas={0: SCHEMA, 1: now})
    settings = replace(
        SETTINGS,
        key=("user_id",),
        operation="op",
        partition_by=("day(seen_at)",),
        sort_by=("name",),
    )
    plan = planned(facts, settings=settings)
    assert taken(plan) == (None, 1, 90, 1)
    assert plan is not None
    assert [each.name for each in (*plan.reads.key, plan.reads.operation)] == [
        "id",
        "cdc_operation",
    ]
    assert [name for _, name in plan.schema.projection] == ["id", "name", "seen"]
    assert plan.changelog_schema == SCHEMA
    assert plan.creates is not None
    (partition,) = plan.creates.spec.fields
    assert (partition.source_id, partition.name) == (3, "seen_at_day")


def test_a_snapshot_from_before_a_column_that_is_needed_is_not_chosen() -> None:
    before = replace(SCHEMA, fields=SCHEMA.fields[1:])
    lines = (snapshot(1, rows=90), replace(snapshot(2, rows=90), schema_id=1))
    facts = changelog(*lines, schemas={0: before, 1: SCHEMA})
    assert taken(planned(facts)) == (None, 2, 180, 0)


def test_a_column_that_no_snapshot_has_yet_is_named() -> None:
    before = replace(SCHEMA, fields=SCHEMA.fields[1:])
    with pytest.raises(errors.ConfigError, match="no key column 'id'"):
        planned(changelog(snapshot(1), schemas={0: before}))


def test_a_snapshot_that_does_not_say_its_schema_has_the_current_one() -> None:
    plan = planned(changelog(replace(snapshot(1), schema_id=None), schemas={}))
    assert plan is not None
    assert plan.changelog_schema is SCHEMA


# The mirror.


def test_a_new_mirror_is_laid_out_as_configured() -> None:
    settings = replace(
        SETTINGS,
        partition_by=("bucket(16, id)", "seen"),
        sort_by=("day(seen) desc", "name"),
        format_version=2,
    )
    plan = planned(changelog(snapshot(1)), settings=settings)
    assert plan is not None
    assert plan.creates is not None
    assert plan.creates.format_version == 2
    assert (plan.spec, plan.sort_order) == (plan.creates.spec, plan.creates.sort_order)
    assert [each.name for each in plan.spec.fields] == ["id_bucket", "seen"]
    assert [each.descending for each in plan.sort_order.fields] == [True, False]
    assert plan_document(plan)["creates_mirror"] == {
        "format_version": 2,
        "partitioned_by": ["bucket(16, id)", "seen"],
        "sorted_by": ["day(seen) desc", "name asc"],
    }
    assert dict(describe(plan))["mirror"] == (
        "shop.users, which is made with format version 2, partitioned by bucket(16, id), seen, "
        "sorted by day(seen) desc, name asc"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"partition_by": ("nothing",)},
        {"partition_by": ("day of(seen)",)},
        {"sort_by": ("nothing",)},
        {"sort_by": ("day of(seen)",)},
    ],
)
def test_a_layout_that_cannot_be_is_a_mistake(wrong: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(errors.ConfigError):
        planned(changelog(snapshot(1)), settings=replace(SETTINGS, **wrong))  # type: ignore[arg-type]


def test_a_column_that_the_mirror_is_partitioned_by_cannot_be_dropped() -> None:
    settings = replace(
        SETTINGS, partition_by=("void(name)", "day(seen)"), sort_by=("id",), on_drop=OnDrop.DROP
    )
    first = planned(changelog(snapshot(1)), settings=settings)
    assert first is not None
    there = replace(
        mirror(merged_through("1")),
        spec=first.spec,
        sort_order=first.sort_order,
    )
    without_name = replace(SCHEMA, fields=(SCHEMA.fields[0], *SCHEMA.fields[2:]))
    plan = plan_merge(changelog(*appends(1, 1), schema=without_name), there, settings)
    assert plan is not None
    assert plan.schema.changes == ("name is dropped",)
    without_seen = replace(SCHEMA, fields=(*SCHEMA.fields[:2], *SCHEMA.fields[3:]))
    with pytest.raises(errors.UnsupportedSchemaChangeError, match="partitioned or sorted by it"):
        plan_merge(changelog(*appends(1, 1), schema=without_seen), there, settings)


def test_the_sequence_is_a_column_of_the_mirror_only_with_order_per_key() -> None:
    plain = planned(changelog(snapshot(1)))
    per_key = planned(changelog(snapshot(1)), settings=replace(SETTINGS, order=Order.PER_KEY))
    assert plain is not None
    assert per_key is not None
    assert (plain.key_ids, plain.sequence_id) == ((1,), None)
    assert (per_key.key_ids, per_key.sequence_id) == ((1,), 4)


# Tasks.


@pytest.mark.parametrize(
    ("rows", "size", "cores", "bits"),
    [
        (0, 0, 8, 0),
        (200_000, 256 * MIB, 8, 0),
        # Nothing that grows with the rows goes back to the driver, so there are at least two.
        (200_001, 0, 1, 1),
        (1_000_000, 0, 2, 1),
        (1_000_000, 0, 64, 3),
        (40_000_000, 0, 2, 5),
        (1, 256 * MIB + 1, 1, 1),
        (100_000, 2048 * MIB, 2, 3),
    ],
)
def test_the_number_of_tasks_follows_the_changes(
    rows: int, size: int, cores: int, bits: int
) -> None:
    assert plan_bits(rows=rows, size=size, cores=cores) == bits


@given(rows=st.integers(0, 10**10), size=st.integers(0, 10**13), cores=st.integers(1, 10_000))
def test_no_task_gets_more_than_its_share_and_no_more_tasks_than_are_of_use(
    rows: int, size: int, cores: int
) -> None:
    tasks = 2 ** plan_bits(rows=rows, size=size, cores=cores)
    assert rows / tasks <= 2_000_000
    assert size / tasks <= 256 * MIB
    if tasks > 2:
        is_full = rows / tasks > 1_000_000 or size / tasks > 128 * MIB
        assert is_full or (tasks < 2 * cores and rows / tasks > 100_000)


# For people and programs.


def test_a_plan_is_described_as_text() -> None:
    plan = planned(changelog(*appends(10, 20, 30, 90)), after=1)
    assert plan is not None
    assert describe(plan) == [
        ("changelog", "shop.users_changelog: 2 snapshots after 1 through 3"),
        ("changes", "50 rows in 4.9 KiB"),
        ("mirror", "shop.users, planned on snapshot 700"),
        ("key", "id"),
        ("work", "1 task"),
        ("left after it", "1 snapshot"),
    ]


def test_a_first_merge_is_described_as_text() -> None:
    plan = planned(changelog(*appends(10)))
    assert plan is not None
    assert describe(plan)[0] == ("changelog", "shop.users_changelog: everything as of snapshot 1")
    assert dict(describe(plan))["left after it"] == "nothing"
    empty = plan_merge(changelog(*appends(10)), mirror(None, total_rows=0, head=None), SETTINGS)
    assert empty is not None
    assert dict(describe(empty))["mirror"] == "shop.users, which is empty"


def test_a_change_of_the_schema_is_described() -> None:
    wider = replace(SCHEMA, fields=(*SCHEMA.fields, Field(30, "age", P.INT)))
    plan = planned(changelog(*appends(1, 1), schema=wider), after=1)
    assert plan is not None
    assert ("schema", "age is added as int") in describe(plan)


def test_a_plan_is_described_as_json() -> None:
    plan = planned(changelog(*appends(10, 20)), after=1)
    assert plan is not None
    document = plan_document(plan)
    assert json.loads(json.dumps(document)) == document
    assert (document["after"], document["through"], document["planned_on"]) == ("1", "2", "700")
    assert document["columns"] == [
        {"name": "id", "type": "long", "from": "id"},
        {"name": "name", "type": "string", "from": "name"},
        {"name": "seen", "type": "timestamp", "from": "seen"},
    ]
    first = planned(changelog(*appends(10)))
    assert first is not None
    assert plan_document(first)["after"] is None
    assert plan_document(first)["planned_on"] is None


def test_soft_deletes_mark_rows_in_a_column_of_their_own() -> None:
    plan = planned(changelog(snapshot(1)), settings=replace(SETTINGS, deletes=Deletes.SOFT))
    assert plan is not None
    assert plan.schema.deleted == Field(4, "cdc_deleted", P.BOOLEAN)


def test_a_mirror_of_format_version_1_is_refused_with_the_command_before_the_first_merge() -> None:
    old = replace(mirror(None, total_rows=0, head=None), format_version=1)
    with pytest.raises(errors.ConfigError) as refused:
        plan_merge(changelog(snapshot(1)), old, SETTINGS)
    command = "ALTER TABLE `lake`.`shop`.`users` SET TBLPROPERTIES ('format-version' = '3')"
    assert refused.value.next_step == command


def test_an_unmapped_column_is_a_warning() -> None:
    there = mirror(merged_through("1"))
    fields = (*there.schema.fields, Field(50, "by hand", Primitive.STRING))
    added = replace(there, schema=replace(there.schema, fields=fields), last_column_id=50)
    plan = plan_merge(changelog(*appends(5, 5)), added, SETTINGS)
    assert plan is not None
    warning = "no changelog column for 'by hand': rows that change get null there"
    assert ("warning", warning) in describe(plan)
    assert plan_document(plan)["warnings"] == [warning]


@pytest.mark.parametrize(
    ("partition_by", "rows", "expected"),
    [
        (("hour(seen)",), 50_000, 50_000),
        (("hour(seen)",), 4_000, None),
        (("day(seen)",), 1_000_000, None),
        (("bucket(16, id)", "month(seen)"), 1_000_000, None),
        (("bucket(64, id)", "month(seen)"), 1_000_000, 64 * 120),
        (("name",), 10_000, 10_000),
        ((), 1_000_000, None),
    ],
)
def test_many_partitions_are_a_warning_before_they_are_written(
    partition_by: tuple[str, ...], rows: int, expected: int | None
) -> None:
    settings = replace(SETTINGS, partition_by=partition_by)
    plan = plan_merge(changelog(*appends(rows)), None, settings)
    assert plan is not None
    warnings = [text for label, text in describe(plan) if label == "warning"]
    found = [text for text in warnings if "partitions" in text]
    assert bool(found) == (expected is not None)
    assert expected is None or f"{expected:,}" in found[0]


def test_columns_of_any_name_order_the_rows() -> None:
    rows = pa.RecordBatch.from_pydict({".a": [2, 1, 3], "[b]": ["x", "y", "z"]})
    assert RowOrder(((".a", False),)).of(rows).to_pylist() == [1, 0, 2]
    assert RowOrder((("[b]", True), (".a", False))).of(rows).to_pylist() == [2, 1, 0]


@pytest.mark.fault("N30")
@pytest.mark.parametrize(
    ("recorded", "order", "default_sequence", "is_described"),
    [
        ("append", Order.PER_KEY, "0009", True),
        (None, Order.PER_KEY, "0009", True),
        ("per_key", Order.PER_KEY, "0005", False),
        ("append", Order.APPEND, "0005", False),
        ("per_key", Order.APPEND, "0005", False),
    ],
)
def test_rows_merged_with_order_append_count_as_the_highest_sequence_from_then_on(
    recorded: str | None, order: Order, default_sequence: str, *, is_described: bool
) -> None:
    marker = replace(merged_through("1"), sequence="0009")
    facts = replace(mirror(marker), order=recorded, default_sequence="0005")
    plan = plan_merge(changelog(*appends(10, 20)), facts, replace(SETTINGS, order=order))
    assert plan is not None
    assert plan.default_sequence == default_sequence
    assert any("order changes" in text for _, text in describe(plan)) is is_described


@pytest.mark.fault("N30")
def test_a_mirror_that_has_the_sequence_was_merged_with_order_per_key() -> None:
    settings = replace(SETTINGS, order=Order.PER_KEY)
    first = plan_merge(changelog(snapshot(1)), None, settings)
    assert first is not None
    marker = replace(merged_through("1"), sequence="0009")
    facts = replace(
        mirror(marker), schema=first.schema.mirror, columns=first.schema.columns, last_column_id=4
    )
    plan = plan_merge(changelog(*appends(10, 20)), facts, settings)
    assert plan is not None
    assert (plan.default_sequence, plan.schema.changes) == (None, ())


@pytest.mark.fault("N30")
def test_rows_that_would_count_as_no_sequence_keep_order_append() -> None:
    facts = replace(mirror(merged_through("1")), order="append")
    settings = replace(SETTINGS, order=Order.PER_KEY)
    log = changelog(*appends(10, 20))
    with pytest.raises(errors.MarkerLostError, match="the marker has no sequence") as refused:
        plan_merge(log, facts, settings)
    assert refused.value.next_step is not None
    assert refused.value.next_step.endswith("frazil resync shop.users")
    # Nothing counts as anything in a mirror without rows, and a rebuild leaves none.
    filled = plan_merge(changelog(snapshot(1)), None, settings)
    assert filled is not None
    with_sequences = replace(
        facts, schema=filled.schema.mirror, columns=filled.schema.columns, last_column_id=4
    )
    for there, rebuild in (
        (replace(facts, total_rows=0), False),
        (facts, True),
        # The column was filled on while the order was append.
        (with_sequences, False),
    ):
        plan = plan_merge(log, there, settings, rebuild=rebuild)
        assert plan is not None
        assert plan.default_sequence is None
