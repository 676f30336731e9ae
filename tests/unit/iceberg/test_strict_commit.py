"""A commit lands whole and once, or says why it did not: whatever the catalog answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from frazil import errors
from frazil.clients.iceberg.commit.strict_commit import (
    CommitOutcome,
    FileChanges,
    StatisticsFile,
    StrictCommit,
)
from frazil.codec.marker_json import encode_marker
from frazil.hooks import Failpoint, InjectedFault, armed
from frazil.model.marker import Carry, MarkerRole, Override, SnapshotRef
from frazil.model.schema.types import Field, Primitive, Schema
from tests.unit.iceberg.java_errors import thrown
from tests.unit.iceberg.memory_commits import (
    INGEST,
    MERGE,
    appended,
    at,
    begun,
    file,
    goal,
    marker,
    move,
    refuse,
)
from tests.unit.iceberg.memory_table import ICEBERG, MemoryTable, Staging, Update, Version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from frazil.clients.iceberg.gateway import FileIntake

KEPT = "write.metadata.previous-versions-max"


@pytest.fixture
def table() -> MemoryTable:
    return begun()


# --- what lands ---


def test_files_marker_and_all_that_belongs_to_them_land_together(table: MemoryTable) -> None:
    given: list[SnapshotRef] = []

    def statistics(snapshot: SnapshotRef) -> StatisticsFile:
        given.append(snapshot)
        return StatisticsFile("/lake/index.puffin", 900, 80)

    schema = Schema(1, (Field(1, "id", Primitive.LONG), Field(7, "more", Primitive.LONG)))
    commit = appended(
        1,
        2,
        schema=schema,
        schema_before=0,
        planned_on=1,
        summary={"frazil.rows": "5"},
        properties={"frazil.table": "t"},
        statistics=statistics,
    )

    receipt = table.committer.commit(commit)

    assert receipt.outcome is CommitOutcome.COMMITTED
    assert receipt.marker == goal(2).written_by(SnapshotRef(2, 2)) == marker(table)
    version = table.version
    assert version.files == {"data-1", "data-2"}
    assert (version.schema, version.last_column) == (1, 7)
    assert version.texts["frazil.table"] == "t"
    assert (given, version.statistics) == (
        [SnapshotRef(2, 2)],
        ((2, "/lake/index.puffin", 900, 80, []),),
    )
    summary = version.snapshots[-1]["summary"]
    assert (summary["frazil.rows"], summary["frazil.batch"]) == ("5", "batch-2")
    assert summary["frazil.ingest"] == encode_marker(goal(2))
    assert at(table) == receipt.marker


def test_a_schema_with_fewer_columns_gives_no_column_id_again(table: MemoryTable) -> None:
    schema = Schema(1, (Field(1, "id", Primitive.LONG),))
    table.committer.commit(appended(1, 2, schema=schema))
    assert (table.version.schema, table.version.last_column) == (1, 3)


def test_without_an_index_there_is_no_statistics_file(table: MemoryTable) -> None:
    table.committer.commit(appended(1, 2, statistics=lambda _snapshot: None))
    assert table.version.statistics == ()


def test_files_and_deletes_come_and_go(table: MemoryTable) -> None:
    deletes = (file("delete-2", **{"referenced-data-file": "data-1"}), file("shared-delete"))
    changes = FileChanges(added=(file("data-2"),), added_deletes=deletes)
    table.committer.commit(StrictCommit(move=move(1, 2), changes=changes, planned_on=1))
    assert table.version.deletes == {"delete-2", "shared-delete"}

    changes = FileChanges(added=(file("data-3"),), removed_deletes=(file("delete-2"),))
    table.committer.commit(StrictCommit(move=move(2, 3), changes=changes, planned_on=2))
    assert table.version.deletes == {"shared-delete"}

    changes = FileChanges(removed=(file("data-1"),))
    table.committer.commit(StrictCommit(move=move(3, 4), changes=changes, planned_on=3))
    assert table.version.files == {"data-2", "data-3"}


def test_a_delta_may_be_the_first_commit() -> None:
    table = MemoryTable()
    changes = FileChanges(added=(file("data-1"),), added_deletes=(file("delete"),))
    table.committer.commit(StrictCommit(move=move(None, 1), changes=changes))
    assert table.version.deletes == {"delete"}


def test_a_replacement_leaves_only_what_it_adds(table: MemoryTable) -> None:
    changes = FileChanges(added=(file("data-2"),), replaces_everything=True)
    table.committer.commit(StrictCommit(move=move(1, 2), changes=changes))
    assert table.version.files == {"data-2"}


@pytest.mark.parametrize(
    ("changes", "only_adds"),
    [
        (FileChanges(), True),
        (FileChanges(added=("a",)), True),
        (FileChanges(added=("a",), added_deletes=("d",)), False),
        (FileChanges(added=("a",), removed=("b",)), False),
        (FileChanges(added=("a",), removed_deletes=("d",)), False),
        (FileChanges(added=("a",), replaces_everything=True), False),
        (FileChanges(removed=("b",), replaces_everything=True), False),
    ],
)
def test_only_what_just_adds_can_be_repeated_on_another_head(
    changes: FileChanges, *, only_adds: bool
) -> None:
    assert changes.only_adds is only_adds


@pytest.mark.parametrize(
    ("before", "after"), [(None, None), ("99", "100"), ("100", "100"), ("500", "500"), ("x", "x")]
)
def test_enough_earlier_versions_are_kept_to_tell_a_rollback_after_expiry(
    before: str | None, after: str | None
) -> None:
    table = MemoryTable(Version(texts={} if before is None else {KEPT: before}))
    table.committer.commit(appended(None, 1))
    assert table.version.texts.get(KEPT) == after


# --- who may commit ---


def test_a_batch_that_is_in_is_not_written_twice(table: MemoryTable) -> None:
    before = table.version
    receipt = table.committer.commit(appended(None, 1))
    assert (receipt.outcome, receipt.marker) == (CommitOutcome.ALREADY_DONE, marker(table))
    assert table.version is before


def test_an_overtaken_commit_names_the_batch_that_came_first(table: MemoryTable) -> None:
    refuse(table, appended(None, 2), errors.FencedError, "ingest.*batch-1.*batch-2")


def test_a_marker_of_another_source_needs_a_resync(table: MemoryTable) -> None:
    commit = StrictCommit(move=move(1, 2, source="other"))
    refused = refuse(table, commit, errors.SourceReplacedError, "source s, not other")
    assert refused.next_step == "frazil resync shop.orders"


@pytest.mark.parametrize(
    ("role", "step"),
    [
        (INGEST, "frazil resync shop.orders"),
        (MERGE, "frazil position set shop.orders --role merge"),
    ],
)
def test_a_marker_that_is_gone_is_no_beginning(role: MarkerRole, step: str) -> None:
    table = MemoryTable()
    refused = refuse(table, appended(1, 2, role), errors.MarkerLostError, "is missing")
    assert refused.next_step == step
    table.change(table.version.foreign(total_records="4"))
    refused = refuse(table, appended(None, 1, role), errors.MarkerLostError, "4 rows and no marker")
    assert refused.next_step == step


def test_a_table_that_was_emptied_may_be_begun() -> None:
    table = MemoryTable()
    table.change(table.version.foreign(total_records="0"))
    assert at(table) is None
    table.committer.commit(appended(None, 1))
    assert at(table) == marker(table)


def test_another_table_under_the_name_is_not_touched(table: MemoryTable) -> None:
    table.change(replace(table.version, id="another"))
    refuse(table, appended(1, 2), errors.TableReplacedError, "another")
    over = Override(INGEST, table.version.texts["frazil.ingest"], goal(5))
    refuse(table, StrictCommit(move=over), errors.TableReplacedError)


def test_what_was_planned_on_another_head_is_planned_again(table: MemoryTable) -> None:
    table.change(table.version.foreign())
    refuse(table, appended(1, 2, planned_on=1), errors.CommitConflictError, "newer head")
    assert table.committer.commit(appended(1, 2, planned_on=2)).outcome is CommitOutcome.COMMITTED
    # Without a head it holds on any.
    table.change(table.version.foreign())
    assert table.committer.commit(appended(2, 3)).outcome is CommitOutcome.COMMITTED


def test_what_was_planned_on_a_head_does_not_hold_on_a_table_without_one() -> None:
    refuse(MemoryTable(), appended(None, 1, planned_on=1), errors.CommitConflictError, "newer head")


def test_what_was_planned_on_another_schema_is_planned_again(table: MemoryTable) -> None:
    table.change(replace(table.version, schema=4))
    refuse(table, appended(1, 2, schema_before=0), errors.CommitConflictError, "newer schema")
    assert (
        table.committer.commit(appended(1, 2, schema_before=4)).outcome is CommitOutcome.COMMITTED
    )


def test_an_operator_sets_a_marker_only_over_the_one_that_was_seen(table: MemoryTable) -> None:
    seen = table.version.texts["frazil.ingest"]
    over = StrictCommit(move=Override(INGEST, seen, goal(9)))
    assert table.committer.commit(over).outcome is CommitOutcome.COMMITTED
    assert marker(table).position == "9"
    refuse(table, over, errors.CommitConflictError, "moved by another process")
    # One that nobody can read is replaced as well, if it is the one that was seen.
    table.change(replace(table.version, texts={"frazil.ingest": "?"}))
    table.committer.commit(StrictCommit(move=Override(INGEST, "?", goal(10))))
    assert marker(table).position == "10"


# --- files that are not those of the plan ---

GONE = FileChanges(added=(file("data-2"),), removed_deletes=(file("delete-9"),))
NEVER_THERE = FileChanges(added_deletes=(file("d", **{"referenced-data-file": "data-9"}),))


@pytest.mark.parametrize("changes", [GONE, NEVER_THERE])
def test_a_plan_with_files_that_the_table_lacks_was_overtaken_or_was_wrong(
    table: MemoryTable, changes: FileChanges
) -> None:
    commit = StrictCommit(move=move(1, 2), changes=changes)
    refuse(table, commit, errors.CommitConflictError, "not in the table")
    refuse(table, replace(commit, planned_on=1), errors.StaleIndexError, "not in the table")


def test_a_file_that_is_not_staged_in_silence_is_noticed(table: MemoryTable) -> None:
    """Iceberg drops a file that it has already, for one."""
    commit = replace(appended(1, 2), changes=FileChanges(added=(file("data-2"),) * 2))
    table.makes = _Forgetful
    refuse(table, commit, errors.CommitConflictError, "added-data-files is 0, planned were 2")
    refuse(table, replace(commit, planned_on=1), errors.StaleIndexError, "planned were 2")


def test_a_commit_without_a_snapshot_is_none() -> None:
    table = MemoryTable()
    table.makes = _Idle
    refuse(table, appended(None, 1), errors.CommitConflictError, "no snapshot")


class _Losing(Update):
    def take(self, intake: FileIntake, files: Sequence[str]) -> None:
        """It loses its files."""


class _Forgetful(Staging):
    def newAppend(self) -> Update:  # noqa: N802 - Java's name
        return _Losing(self, "append")


class _Idle(Staging):
    """No update does anything."""

    def newAppend(self) -> Any:  # noqa: N802 - Java's name
        update = super().newAppend()
        update.commit = lambda: None  # type: ignore[method-assign]
        return update


def test_a_store_that_fails_while_staging_is_a_storage_error(table: MemoryTable) -> None:
    def refusing(version: Version) -> Staging:
        staging = Staging(version)
        staging.newAppend = _raising(f"{ICEBERG}RuntimeIOException")  # type: ignore[method-assign]
        return staging

    table.makes = refusing
    refuse(table, appended(1, 2), errors.StorageError, "preparing the commit")


# --- what became of a commit that ended in an exception ---


def _raising(*names: str) -> Callable[[], Any]:
    def throw() -> None:
        raise thrown(*names)

    return throw


UNKNOWN = _raising(f"{ICEBERG}CommitStateUnknownException")


@pytest.mark.fault("C2")
def test_a_commit_whose_reply_was_lost_is_found(table: MemoryTable) -> None:
    table.reply = UNKNOWN
    receipt = table.committer.commit(appended(1, 2))
    assert (receipt.outcome, receipt.marker) == (CommitOutcome.FOUND_AFTERWARDS, marker(table))
    assert table.version.files == {"data-1", "data-2"}


def test_a_commit_that_landed_is_found_also_below_the_next_one(table: MemoryTable) -> None:
    def goes_on() -> None:
        table.reply = lambda: None
        table.committer.commit(appended(2, 3))
        UNKNOWN()

    table.reply = goes_on
    receipt = table.committer.commit(appended(1, 2))
    assert (receipt.outcome, receipt.marker.position) == (CommitOutcome.FOUND_AFTERWARDS, "2")
    assert marker(table).position == "3"


def test_a_commit_that_landed_and_was_set_back_since_is_not_taken_for_done(
    table: MemoryTable,
) -> None:
    def set_back() -> None:
        table.change(table.version.rolled_back(1))
        UNKNOWN()

    table.reply = set_back
    with pytest.raises(errors.RolledBackError):
        table.committer.commit(appended(1, 2))


def test_the_same_batch_by_another_process_is_found(table: MemoryTable) -> None:
    def another() -> None:
        table.meanwhile = lambda: None
        table.committer.commit(appended(1, 2))

    table.meanwhile = another
    receipt = table.committer.commit(appended(1, 2))
    assert (receipt.outcome, receipt.marker) == (CommitOutcome.FOUND_AFTERWARDS, marker(table))
    assert len(table.version.snapshots) == 2


def test_other_work_meanwhile_fences_and_a_foreign_commit_conflicts(table: MemoryTable) -> None:
    def other_work() -> None:
        table.meanwhile = lambda: None
        table.committer.commit(appended(1, 7))

    table.meanwhile = other_work
    with pytest.raises(errors.FencedError, match="batch-7"):
        table.committer.commit(appended(1, 2))

    table.meanwhile = lambda: table.change(table.version.foreign())
    with pytest.raises(errors.CommitConflictError, match="no other did the work"):
        table.committer.commit(appended(7, 8))
    assert marker(table).position == "7"


def test_credentials_that_may_not_commit_are_no_conflict(table: MemoryTable) -> None:
    table.meanwhile = _raising(f"{ICEBERG}ForbiddenException")
    refuse(table, appended(1, 2), errors.PermissionError)


def test_no_answer_to_the_question_either_is_not_taken_for_a_no(table: MemoryTable) -> None:
    table.reply = UNKNOWN
    table.opening = _raising("java.net.SocketException")
    with pytest.raises(errors.CommitUnknownError, match="batch-2"):
        table.committer.commit(appended(1, 2))

    def away() -> None:
        raise errors.CatalogError("it is away.")

    table.opening = away
    with pytest.raises(errors.CommitUnknownError, match="batch-3"):
        table.committer.commit(appended(2, 3))


def test_a_table_that_is_gone_is_an_answer(table: MemoryTable) -> None:
    table.meanwhile = UNKNOWN
    table.opening = _raising(f"{ICEBERG}NoSuchTableException")
    refuse(table, appended(1, 2), errors.TableNotFoundError)


def test_a_table_that_cannot_be_opened_is_gone_another_one_or_out_of_reach(
    table: MemoryTable,
) -> None:
    table.begins = _raising("java.net.SocketException")
    refuse(table, appended(1, 2), errors.CatalogError, "refreshing the table")
    table.version = replace(table.version, id="another")
    refused = refuse(table, appended(1, 2), errors.TableReplacedError, "another")
    assert refused.next_step == "frazil resync shop.orders"
    table.opening = _raising(f"{ICEBERG}NoSuchTableException")
    refuse(table, appended(1, 2), errors.TableNotFoundError)


@pytest.mark.parametrize(
    ("point", "landed"),
    [
        (Failpoint.COMMIT_PLANNED, False),
        (Failpoint.COMMIT_STAGED, False),
        (Failpoint.COMMIT_LANDED, True),
    ],
)
def test_a_process_that_dies_leaves_all_of_a_commit_or_nothing(
    table: MemoryTable, point: Failpoint, *, landed: bool
) -> None:
    with armed(f"{point}=error"), pytest.raises(InjectedFault):
        table.committer.commit(appended(1, 2))
    assert (marker(table).position == "2") is landed
    assert ("data-2" in table.version.files) is landed
    outcome = table.committer.commit(appended(1, 2)).outcome
    assert outcome is (CommitOutcome.ALREADY_DONE if landed else CommitOutcome.COMMITTED)


# --- what moves no marker ---


def test_a_carried_marker_keeps_its_batch_and_gets_the_new_snapshot(table: MemoryTable) -> None:
    before = marker(table)
    receipt = table.committer.commit(StrictCommit(move=Carry(INGEST), planned_on=1))
    assert receipt.marker == replace(before, snapshot=SnapshotRef(2, 2)) == marker(table)
    # A batch whose reply was lost before still finds itself done.
    again = table.committer.commit(appended(None, 1))
    assert again.outcome is CommitOutcome.ALREADY_DONE
    table.committer.commit(appended(1, 2))


def test_a_table_without_a_marker_has_none_to_carry() -> None:
    with pytest.raises(errors.CommitConflictError):
        MemoryTable().committer.commit(StrictCommit(move=Carry(INGEST)))


def test_new_deletes_without_old_ones_and_more_rows_than_before_are_no_rewrite() -> None:
    rewrite = FileChanges(added=("{}",), removed=("{}",), rewritten_at=3)
    assert rewrite.is_rewrite
    assert not replace(rewrite, added_deletes=("{}",)).is_rewrite
    assert replace(rewrite, added_deletes=("{}",), removed_deletes=("{}",)).is_rewrite
    assert not replace(rewrite, rewritten_at=None).is_rewrite
    assert not replace(rewrite, has_surplus_rows=True).is_rewrite
