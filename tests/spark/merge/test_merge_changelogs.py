"""Changelogs as other tools write them, merged unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frazil import errors
from frazil.merge.merger import Merger
from frazil.merge.planning import plan as planning
from frazil.merge.planning.settings import IndexSettings
from frazil.merge.report import MergeAction
from frazil.model.policy import Deletes, Order
from tests.support.lake.sql_changelogs import SqlChangelog, sql_changelog
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = ["sql_changelog"]

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("type_", "moments"),
    [
        (
            "string",
            (
                "'0000/000000000000000a/0000000000000000'",
                "'0000/000000000000000a/000000000000000b'",
                "'0000/00000000000000a0/0000000000000000'",
            ),
        ),
        ("bigint", ("9", "10", "100")),
        ("int", ("9", "10", "100")),
        ("decimal(30, 2)", ("9.50", "10.25", "100.00")),
        (
            "timestamp",
            (
                "timestamp'2026-01-01 00:00:00.000009Z'",
                "timestamp'2026-01-01 00:00:00.00001Z'",
                "timestamp'2026-10-01 00:00:00Z'",
            ),
        ),
        (
            "timestamp_ntz",
            (
                "timestamp_ntz'2026-01-01 00:00:00.000009'",
                "timestamp_ntz'2026-01-01 00:00:00.00001'",
                "timestamp_ntz'2026-10-01 00:00:00'",
            ),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("order", sampled(Order, ci={Order.PER_KEY}))
def test_a_sequence_of_any_ordered_type_decides_which_change_is_newest(
    sql_changelog: Callable[..., SqlChangelog],
    type_: str,
    moments: tuple[str, str, str],
    order: Order,
) -> None:
    first, second, third = moments
    table = sql_changelog(f"id bigint, v string, op string, seq {type_}", order=order)
    table.write(f"(1, 'newest', 'U', {second})", f"(1, 'older', 'I', {first})")
    table.merge()
    assert table.rows("id, v") == [(1, "newest")]
    table.write(f"(1, 'last', 'U', {third})", f"(2, 'other', 'I', {third})")
    table.merge()
    assert table.rows("id, v") == [(1, "last"), (2, "other")]


SPELLINGS = (
    ("I", "U", "D"), ("c", "u", "d"), ("r", "u", "d"), ("INSERT", "UPDATE", "DELETE"),
    ("insert", "Update", "dElEtE"), ("READ", "U", "delete"),
)  # fmt: skip


def test_operations_are_understood_in_every_spelling(
    sql_changelog: Callable[..., SqlChangelog],
) -> None:
    table = sql_changelog("id bigint, v string, op string, seq bigint")
    # Two keys for each spelling: one is updated, the other one is deleted.
    spelled = [(2 * at, *each) for at, each in enumerate(SPELLINGS)]
    for key, insert, _, _ in spelled:
        table.write(f"({key}, 'a', '{insert}', 1)", f"({key + 1}, 'b', '{insert}', 2)")
    table.merge()
    for key, _, update, delete in spelled:
        table.write(f"({key}, 'aa', '{update}', 3)", f"({key + 1}, null, '{delete}', 4)")
    report = table.merge()
    assert table.rows("id") == sorted(((key,) for key, *_ in spelled), key=repr)
    assert {v for (v,) in table.rows("v")} == {"aa"}
    counts = (report.counts[MergeAction.UPDATE], report.counts[MergeAction.DELETE])
    assert counts == (len(SPELLINGS), len(SPELLINGS))


def test_an_unknown_operation_stops_the_table_with_a_count(
    sql_changelog: Callable[..., SqlChangelog],
) -> None:
    table = sql_changelog("id bigint, v string, op string, seq bigint")
    table.write("(1, 'secret', 'X', 1)", "(2, 'b', 'I', 2)", "(3, 'c', null, 3)")
    with pytest.raises(errors.MalformedChangeError, match="2 rows") as refusal:
        table.merge()
    assert "secret" not in str(refusal.value)


def test_deletes_that_carry_only_the_key_remove_the_row(
    sql_changelog: Callable[..., SqlChangelog],
) -> None:
    table = sql_changelog("id bigint, v string, n int, op string, seq bigint")
    table.write("(1, 'a', 1, 'c', 1)", "(2, 'b', 2, 'c', 2)")
    table.write("(1, null, null, 'd', 3)")
    table.merge()
    assert table.rows() == [(2, "b", 2)]


@pytest.mark.fault("E2", "N14")
def test_late_and_repeated_changes_do_not_overwrite_newer_ones(
    sql_changelog: Callable[..., SqlChangelog],
) -> None:
    table = sql_changelog("id bigint, v string, op string, seq bigint", order=Order.PER_KEY)
    table.write("(1, 'at 10', 'I', 10)", "(2, 'at 11', 'I', 11)")
    table.merge()
    table.write("(2, null, 'D', 20)")
    table.merge()
    # Late for the row, late for the delete, repeated as it was.
    table.write("(1, 'at 5', 'U', 5)", "(2, 'at 15', 'U', 15)", "(1, 'at 10', 'I', 10)")
    report = table.merge()
    assert table.rows("id, v") == [(1, "at 10")]
    assert report.counts[MergeAction.LATE] == 2
    table.write("(2, 'back', 'I', 21)")
    table.merge()
    assert table.rows("id, v") == [(1, "at 10"), (2, "back")]


@pytest.mark.fault("N14")
def test_a_late_truncate_removes_only_what_is_older(
    sql_changelog: Callable[..., SqlChangelog],
) -> None:
    table = sql_changelog("id bigint, v string, op string, seq bigint", order=Order.PER_KEY)
    table.write("(1, 'old', 'I', 10)", "(2, 'new', 'I', 30)")
    table.merge()
    table.write("(null, null, 'TRUNCATE', 20)", "(3, 'between', 'I', 15)")
    table.merge()
    assert table.rows("id, v") == [(2, "new")]
    table.write("(1, 'late', 'U', 19)", "(4, 'after', 'I', 25)")
    report = table.merge()
    assert table.rows("id, v") == [(2, "new"), (4, "after")]
    assert report.counts[MergeAction.LATE] == 1


@pytest.mark.fault("E2")
def test_a_change_older_than_what_was_merged_is_out_of_order_with_append(
    sql_changelog: Callable[..., SqlChangelog],
) -> None:
    table = sql_changelog("id bigint, v string, op string, seq bigint")
    table.write("(1, 'a', 'I', 10)")
    table.merge()
    table.write("(2, 'b', 'I', 9)")
    with pytest.raises(errors.OutOfOrderError) as refusal:
        table.merge()
    assert "per_key" in str(refusal.value)
    assert table.rows() == [(1, "a")]


def test_different_changes_of_one_key_at_one_sequence_are_an_error(
    sql_changelog: Callable[..., SqlChangelog],
) -> None:
    table = sql_changelog("id bigint, v string, op string, seq bigint")
    table.write("(1, 'a', 'I', 1)", "(1, 'a', 'I', 1)")
    table.merge()
    assert table.rows() == [(1, "a")]
    table.write("(1, 'heads', 'U', 2)", "(1, 'tails', 'U', 2)")
    with pytest.raises(errors.DuplicateKeyError):
        table.merge()


@pytest.mark.fault("T1", "N12")
def test_a_null_in_a_key_is_refused_with_a_count(
    sql_changelog: Callable[..., SqlChangelog],
) -> None:
    table = sql_changelog(
        "id bigint, part string, v string, op string, seq bigint", key=("id", "part")
    )
    table.write("(1, null, 'a', 'I', 1)", "(null, 'x', 'a', 'I', 2)", "(1, 'x', 'b', 'I', 3)")
    with pytest.raises(errors.NullKeyError, match="2 changes"):
        table.merge()


@pytest.fixture
def several_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are spread over tasks as many would be."""
    monkeypatch.setattr(planning, "_ROWS_OF_ONE_TASK", 2)
    monkeypatch.setattr(planning, "_ROWS_PER_TASK", 3)


@pytest.mark.parametrize("spread", [False, True])
def test_soft_deletes_keep_the_row_and_mark_it(
    sql_changelog: Callable[..., SqlChangelog], request: pytest.FixtureRequest, *, spread: bool
) -> None:
    if spread:
        request.getfixturevalue("several_tasks")
    table = sql_changelog("id bigint, v string, op string, seq bigint", deletes=Deletes.SOFT)
    table.write("(1, 'a', 'I', 1)", "(2, 'b', 'I', 2)", "(3, 'c', 'I', 3)", "(4, 'd', 'I', 4)")
    table.merge()
    table.write("(1, null, 'D', 5)", "(5, 'e', 'I', 6)", "(5, null, 'D', 7)", "(9, null, 'D', 8)")
    report = table.merge()
    assert report.counts[MergeAction.NONE] == 1
    marked = "id, v, cdc_deleted"
    assert table.rows(marked) == [
        (1, "a", True), (2, "b", False), (3, "c", False), (4, "d", False), (5, "e", True),
    ]  # fmt: skip
    table.write("(2, 'bb', 'U', 9)", "(null, null, 'T', 10)", "(1, 'again', 'I', 11)")
    table.merge()
    assert table.rows(marked) == [
        (1, "again", False), (2, "bb", True), (3, "c", True), (4, "d", True), (5, "e", True),
    ]  # fmt: skip


def test_ignored_deletes_leave_every_row(sql_changelog: Callable[..., SqlChangelog]) -> None:
    table = sql_changelog("id bigint, v string, op string, seq bigint", deletes=Deletes.IGNORE)
    table.write("(1, 'a', 'I', 1)", "(2, 'b', 'I', 2)")
    table.merge()
    table.write("(1, null, 'D', 3)", "(null, null, 'T', 4)", "(2, 'bb', 'U', 5)")
    table.merge()
    assert table.rows() == [(1, "a"), (2, "bb")]


@pytest.mark.usefixtures("several_tasks")
@pytest.mark.parametrize("version", [2, 3])
def test_many_changes_are_spread_over_tasks_by_their_hash(
    sql_changelog: Callable[..., SqlChangelog], version: int
) -> None:
    table = sql_changelog(
        "id bigint, v string, op string, seq bigint",
        format_version=version,
        index=IndexSettings(young_entries=2, max_runs=2),
    )
    for at in range(4):
        rows = [f"({key}, 'v{at}', 'U', {at * 100 + key})" for key in range(at, 30, at + 1)]
        table.write(*rows, f"({at}, null, 'D', {at * 100 + 50})")
        table.merge()
    expected: dict[int, str] = {}
    for at in range(4):
        expected |= dict.fromkeys(range(at, 30, at + 1), f"v{at}")
        expected.pop(at)
    assert table.rows() == sorted(expected.items(), key=repr)


@pytest.mark.usefixtures("several_tasks")
def test_invalid_rows_are_counted_over_all_tasks(
    sql_changelog: Callable[..., SqlChangelog],
) -> None:
    table = sql_changelog("id bigint, v string, op string, seq bigint")
    table.write(*(f"({key}, 'a', 'what', {key})" for key in range(20)))
    with pytest.raises(errors.MalformedChangeError, match="20 rows have an operation"):
        table.merge()


@pytest.mark.usefixtures("several_tasks")
def test_a_truncate_reaches_the_keys_of_every_task(
    sql_changelog: Callable[..., SqlChangelog],
) -> None:
    table = sql_changelog("id bigint, v string, op string, seq bigint")
    table.write(*(f"({key}, 'a', 'I', {key})" for key in range(20)))
    table.merge()
    table.write(
        *(f"({key}, 'b', 'U', {100 + key})" for key in range(10)),
        "(null, null, 'T', 200)",
        *(f"({key}, 'c', 'I', {300 + key})" for key in range(5, 15)),
    )
    report = table.merge()
    assert (report.rows_read, report.commits[0].truncated) == (21, True)
    assert table.rows() == sorted([(key, "c") for key in range(5, 15)], key=repr)


@pytest.mark.fault("N23")
def test_a_backlog_is_split_at_snapshots(sql_changelog: Callable[..., SqlChangelog]) -> None:
    table = sql_changelog("id bigint, v string, op string, seq bigint", max_rows=2)
    table.write("(1, 'a', 'I', 1)")
    table.merge()
    table.write("(1, 'b', 'U', 2)", "(2, 'b', 'I', 3)", "(3, 'b', 'I', 4)")
    table.write("(4, 'c', 'I', 5)")
    table.write("(5, 'd', 'I', 6)")
    report = table.merge()
    # One snapshot is larger than the limit and goes alone; the other two fit together.
    assert [commit.rows_read for commit in report.commits] == [3, 2]
    assert table.rows() == [(1, "b"), (2, "b"), (3, "b"), (4, "c"), (5, "d")]


def test_nothing_new_is_no_commit_and_a_compaction_is_an_empty_one(
    sql_changelog: Callable[..., SqlChangelog],
) -> None:
    table = sql_changelog("id bigint, v string, op string, seq bigint")
    table.write("(1, 'a', 'I', 1)")
    table.write("(2, 'b', 'I', 2)")
    table.merge()
    assert table.merge().commits == ()
    catalog, _, name = table.changelog.partition(".")
    table.spark.sql(
        f"call {catalog}.system.rewrite_data_files(table => '{name}', "
        "options => map('rewrite-all', 'true'))"
    )
    (commit,) = table.merge().commits
    assert (commit.rows_read, commit.files_added) == (0, 0)
    assert table.rows() == [(1, "a"), (2, "b")]
    assert table.merge().commits == ()


KEYS = {
    "int": ("int", "1", "2"),
    "bigint": ("bigint", "-9223372036854775808", "9223372036854775807"),
    "text": ("string", "''", "'🧊 it''s'"),
    "decimal": ("decimal(20, 4)", "1.0000", "-100"),
    "timestamp": (
        "timestamp",
        "timestamp'1969-12-31 23:59:59Z'",
        "timestamp'2026-01-01 00:00:00Z'",
    ),
    "ntz": ("timestamp_ntz", "timestamp_ntz'2026-03-29 02:30:00'", "timestamp_ntz'1900-01-01'"),
    "date": ("date", "date'1969-12-31'", "date'2026-01-01'"),
    "bytes": ("binary", "X''", "X'00FF'"),
    "boolean": ("boolean", "true", "false"),
    "double": ("double", "double('NaN')", "0.0D"),
    "float": ("float", "float('-0.0')", "1.5F"),
}


# The histories of test_merge_model have keys of all other types.
CI_KEYS = {"bigint", "text", "bytes", "double", "float"}


@pytest.mark.fault("T4")
@pytest.mark.parametrize("kind", sampled(KEYS, ci=CI_KEYS))
def test_every_type_that_can_be_a_key_is_one(
    sql_changelog: Callable[..., SqlChangelog], kind: str
) -> None:
    type_, one, other = KEYS[kind]
    table = sql_changelog(f"id {type_}, v string, op string, seq bigint")
    table.write(f"({one}, 'one', 'I', 1)", f"({other}, 'other', 'I', 2)")
    table.merge()
    # Equal floats have one key, however they are written.
    same = {"double": "0.0D * -1", "float": "float('0.0')"}.get(kind, one)
    goes, stays = (other, "one") if kind == "double" else (one, "other")
    table.write(f"({same if kind in ('double', 'float') else goes}, null, 'D', 3)")
    table.merge()
    assert table.rows("v") == [(stays,)]
    table.write(f"({one}, 'back', 'I', 4)", f"({other}, 'changed', 'U', 5)")
    table.merge()
    assert table.rows("v") == [("back",), ("changed",)]


@pytest.mark.fault("N28")
@pytest.mark.parametrize("soft", [True, False], ids=["soft delete", "unchanged columns"])
def test_nested_values_that_are_read_back_stay_as_they_were(
    sql_changelog: Callable[..., SqlChangelog], *, soft: bool
) -> None:
    columns = "m map<string, int>, s struct<m: map<string, int>, l: array<map<string, int>>>"
    choices = {"deletes": Deletes.SOFT} if soft else {"unchanged": "left_out"}
    table = sql_changelog(
        f"id bigint, n int, {columns}, op string, seq bigint, left_out array<int>", **choices
    )
    table.spark.sql(f"alter table {table.changelog} set tblproperties ('format-version' = '3')")
    table.write(
        "(1, 1, null, named_struct('m', null, 'l', array(null, map())), 'I', 1, null)",
        "(2, 1, map(), null, 'I', 2, null)",
        "(3, 1, map('a', null), named_struct('m', map(), 'l', null), 'I', 3, null)",
    )
    table.merge()
    changelog = table.lake.open(table.settings.changelog)._table
    jvm = table.spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    seven, number = jvm.expressions.Literal.of(7), jvm.types.Types.IntegerType.get()
    changelog.updateSchema().addColumn("s", "late", number, None, seven).commit()
    table.spark.sql(f"refresh table {table.changelog}")
    ids = {
        each.name: each.id
        for each in table.lake.open(table.settings.changelog).load_schema().fields
    }
    gone = f"null, null, null, '{'D' if soft else 'U'}'"
    unsent = "null" if soft else f"array({ids['n']}, {ids['m']}, {ids['s']})"
    table.write(*(f"({key}, {gone}, {3 + key}, {unsent})" for key in (1, 2, 3)))
    table.merge()
    rows = table.spark.sql(f"select id, n, m, s from {table.mirror} order by id").collect()
    assert [row.asDict(recursive=True) for row in rows] == [
        {"id": 1, "n": 1, "m": None, "s": {"m": None, "l": [None, {}], "late": 7}},
        {"id": 2, "n": 1, "m": {}, "s": None},
        {"id": 3, "n": 1, "m": {"a": None}, "s": {"m": {}, "l": None, "late": 7}},
    ]


def test_tables_of_format_version_1_are_read_and_mirrors_of_it_upgraded_first(
    sql_changelog: Callable[..., SqlChangelog],
) -> None:
    table = sql_changelog("id bigint, v string, op string, seq bigint")
    old = "using iceberg tblproperties ('format-version' = '1')"
    table.spark.sql(f"drop table {table.changelog}")
    table.spark.sql(
        f"create table {table.changelog} (id bigint, v string, op string, seq bigint) {old}"
    )
    table.spark.sql(f"create table {table.mirror} (id bigint, v string) {old}")
    table.write("(1, 'a', 'I', 1)", "(2, 'b', 'I', 2)")
    with pytest.raises(errors.ConfigError, match="format version 1") as refusal:
        table.merge()
    assert refusal.value.next_step is not None
    table.spark.sql(refusal.value.next_step)
    table.merge()
    table.write("(1, 'aa', 'U', 3)", "(2, null, 'D', 4)")
    table.merge()
    assert table.rows() == [(1, "aa")]


def test_a_mirror_is_partitioned_and_sorted_by_columns_of_any_name(
    sql_changelog: Callable[..., SqlChangelog],
) -> None:
    names = ("odd name, )", '[a "b"', "x desc")
    columns = ", ".join(f"`{name}` bigint" for name in names)
    table = sql_changelog(
        f"id bigint, {columns}, op string, seq bigint",
        partition_by=('bucket(4, "odd name, )")', '"[a ""b"""', "truncate(10, `x desc`)"),
        sort_by=('"[a ""b""" desc', '"x desc" asc nulls last'),
    )
    table.write("(1, 1, 10, 15, 'I', 1)", "(2, null, null, null, 'I', 2)", "(3, 2, 20, 5, 'I', 3)")
    table.merge()
    table.write("(1, 2, 11, 25, 'U', 4)", "(2, null, null, null, 'D', 5)")
    table.merge()
    assert table.rows() == [(1, 2, 11, 25), (3, 2, 20, 5)]


def test_what_a_column_added_by_hand_holds_is_lost_where_rows_change_and_plan_says_so(
    sql_changelog: Callable[..., SqlChangelog],
) -> None:
    table = sql_changelog("id bigint, v string, op string, seq bigint")
    table.write("(1, 'a', 'I', 1)", "(2, 'b', 'I', 2)")
    table.merge()
    table.spark.sql(f"alter table {table.mirror} add column note string")
    table.spark.sql(f"update {table.mirror} set note = 'mine'")
    table.write("(1, 'aa', 'U', 3)")
    plan = Merger(table.spark, table.lake, table.settings).load_plan()
    assert plan is not None
    assert any("'note'" in text for label, text in planning.describe(plan) if label == "warning")
    table.merge()
    assert table.rows() == [(1, "aa", None), (2, "b", "mine")]


@pytest.mark.fault("N31")
@pytest.mark.parametrize("hours", [4_500, pytest.param(50_000, marks=pytest.mark.deep)])
def test_thousands_of_partitions_are_written_by_one_task(
    sql_changelog: Callable[..., SqlChangelog], hours: int
) -> None:
    table = sql_changelog(
        "id bigint, at timestamp, v int, op string, seq bigint", partition_by=("hour(at)",)
    )
    row = "id, timestamp_seconds(id * 3600) at, 0 v, 'I' op, id seq"
    table.spark.sql(f"insert into {table.changelog} select {row} from range({hours})")
    assert table.merge().commits[0].files_added == hours
    table.write(f"(1, timestamp_seconds(3600), 1, 'U', {hours})", f"(2, null, null, 'D', {hours})")
    table.merge()
    files = table.spark.sql(f"select count(*), sum(record_count) from {table.mirror}.files").first()
    # A file more for the row that changed; those of the two old rows are gone with their last row.
    assert files is not None
    assert tuple(files) == (hours - 1, hours - 1)
    few = f"select id, v from {table.mirror} where at < timestamp_seconds(4 * 3600) order by id"
    assert [tuple(row) for row in table.spark.sql(few).collect()] == [(0, 0), (1, 1), (3, 0)]
