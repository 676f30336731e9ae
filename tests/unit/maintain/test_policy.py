"""Which jobs a table needs, by its facts: when, in which order, and when none."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.maintain.facts import (
    DataFileFacts,
    KeptRole,
    MergedThrough,
    RefFacts,
    SnapshotAge,
    UpkeepFacts,
)
from frazil.maintain.jobs import CompactJob, ExpireJob, RetentionJob
from frazil.maintain.policy import kept_snapshots, lagging_mirrors, plan_jobs
from frazil.maintain.settings import CompactSettings, UpkeepSettings
from frazil.model.policy import JobKind
from frazil.model.table_name import TableName

NAME = TableName("lake", ("public",), "users")
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MIB = 2**20
SETTINGS = UpkeepSettings(retain=timedelta(days=7))
COMPACT = CompactSettings()


def at(age: timedelta) -> int:
    return round((NOW - age).timestamp() * 1000)


def files_of(*sizes: int, dead: int = 0, partition: str = "{}") -> tuple[DataFileFacts, ...]:
    return tuple(
        DataFileFacts(
            location=f"{partition}/{number}",
            bytes=size,
            records=100,
            dead=dead,
            partition=partition,
            written_at=at(timedelta(0)),
        )
        for number, size in enumerate(sizes)
    )


def history(*ages: timedelta) -> tuple[SnapshotAge, ...]:
    """One line of snapshots, oldest first, numbered from 1."""
    return tuple(
        SnapshotAge(id=number, parent=number - 1 or None, sequence=number, committed_at=at(age))
        for number, age in enumerate(ages, start=1)
    )


def table(**facts: object) -> UpkeepFacts:
    given_facts: dict[str, object] = {
        "name": NAME,
        "role": KeptRole.MIRROR,
        "uuid": "u",
        "head": 1,
        "snapshots": history(timedelta(0)),
        "orphans_listed_at": NOW,
        **facts,
    }
    return UpkeepFacts(**given_facts)  # type: ignore[arg-type]


def kinds(facts: UpkeepFacts, settings: UpkeepSettings = SETTINGS) -> list[JobKind]:
    return [job.kind for job in plan_jobs(facts, settings, NOW)]


def test_a_healthy_table_an_empty_one_and_one_that_is_left_alone_need_nothing() -> None:
    assert kinds(table(files=files_of(128 * MIB, 100 * MIB, MIB))) == []
    assert kinds(table(head=None, snapshots=(), orphans_listed_at=None)) == []
    needy = table(
        files=files_of(*[MIB] * 20), orphans_listed_at=None, snapshots=history(timedelta(hours=13))
    )
    assert kinds(replace(needy, snapshots=history(timedelta(0)))) == [JobKind.COMPACT]
    assert kinds(needy) == [JobKind.COMPACT, JobKind.ORPHANS]
    assert kinds(needy, replace(SETTINGS, enabled=False)) == []


def test_small_files_of_one_partition_are_compacted_when_there_are_enough_of_a_size() -> None:
    assert kinds(table(files=files_of(*[MIB] * 7))) == []
    (job,) = plan_jobs(table(files=files_of(*[MIB] * 8, 100 * MIB)), SETTINGS, NOW)
    assert isinstance(job, CompactJob)
    assert [file.bytes for file in job.files] == [MIB] * 8
    assert (job.cost_bytes, job.snapshot_id) == (8 * MIB, 1)
    apart = (*files_of(*[MIB] * 4), *files_of(*[MIB] * 4, partition='{"1000":1}'))
    assert kinds(table(files=apart)) == []
    assert kinds(table(files=files_of(*[MIB] * 8)), replace(SETTINGS, compact=None)) == []


def test_deleted_rows_are_a_reason_for_large_files_too_but_not_foreign_deletes() -> None:
    assert kinds(table(files=files_of(100 * MIB, dead=19))) == []
    (job,) = plan_jobs(table(files=files_of(100 * MIB, dead=20)), SETTINGS, NOW)
    assert job.reason == "20% deleted rows"
    theirs = tuple(replace(each, foreign_deletes=True) for each in files_of(*[MIB] * 20, dead=50))
    assert kinds(table(files=theirs)) == []


def compacted(files: tuple[DataFileFacts, ...], job: CompactJob) -> tuple[DataFileFacts, ...]:
    gone = {file.location for file in job.files}
    live = sum(file.bytes * (file.records - file.dead) // file.records for file in job.files)
    target = COMPACT.target_bytes
    sizes = [target] * (live // target) + ([live % target] if live % target else [])
    new = [
        DataFileFacts(location=f"{job.files[0].location}+{number}", bytes=size, records=100)
        for number, size in enumerate(sizes)
    ]
    return (*(each for each in files if each.location not in gone), *new)


@given(
    st.lists(
        st.tuples(st.integers(1, 300 * MIB), st.integers(0, 100), st.integers(0, 2)), max_size=60
    )
)
def test_jobs_are_disjoint_and_bounded_and_a_table_that_had_them_needs_none(
    shapes: list[tuple[int, int, int]],
) -> None:
    settings = replace(SETTINGS, compact=replace(COMPACT, max_bytes=256 * MIB))
    files = tuple(
        DataFileFacts(
            location=str(number), bytes=size, records=100, dead=dead, partition=str(partition)
        )
        for number, (size, dead, partition) in enumerate(shapes)
    )
    for _ in range(8):
        jobs = plan_jobs(table(files=files), settings, NOW)
        named = [file.location for job in jobs if isinstance(job, CompactJob) for file in job.files]
        assert len(named) == len(set(named))
        if not jobs:
            return
        for job in jobs:
            assert isinstance(job, CompactJob)
            assert job.cost_bytes <= 256 * MIB or len(job.files) == 1
            files = compacted(files, job)
    pytest.fail("it never comes to an end")


def test_a_row_is_rewritten_as_often_as_there_are_sizes_however_long_it_goes_on() -> None:
    files: tuple[DataFileFacts, ...] = ()
    written = rewritten = 0
    for number in range(2_000):
        new = DataFileFacts(location=f"w{number}", bytes=MIB // 4, records=100)
        files, written = (*files, new), written + new.bytes
        for job in plan_jobs(table(files=files), SETTINGS, NOW):
            assert isinstance(job, CompactJob)
            files, rewritten = compacted(files, job), rewritten + job.cost_bytes
    assert len(files) < 40
    assert rewritten < 4 * written


def test_snapshots_expire_by_age_but_for_the_newest_and_what_is_needed() -> None:
    day = timedelta(days=1)
    ages = [day * (40 - number) for number in range(40)]
    facts = table(head=40, snapshots=history(*ages))
    (job,) = plan_jobs(facts, SETTINGS, NOW)
    assert isinstance(job, ExpireJob)
    assert job.snapshots == tuple(range(1, 31))
    # A mirror merged through 12: that one and all after it stay.
    assert kept_snapshots(replace(facts, needed=frozenset({12})), SETTINGS, NOW) == frozenset(
        range(12, 41)
    )
    never = MergedThrough(mirror="public.m")
    assert kinds(replace(facts, role=KeptRole.CHANGELOG, merged=(never,))) == []
    # A few are not worth a commit.
    assert kinds(table(head=12, snapshots=history(*[day * 2] * 1, *[timedelta(0)] * 11))) == []
    assert kinds(replace(facts, is_shared=True)) == []


def test_tags_branches_and_rolled_back_snapshots_are_respected() -> None:
    old = timedelta(days=30)
    line = history(*[old] * 30)
    side = (
        SnapshotAge(id=100, parent=3, sequence=31, committed_at=at(old)),
        SnapshotAge(id=101, parent=100, sequence=32, committed_at=at(old)),
        SnapshotAge(id=200, parent=4, sequence=33, committed_at=at(old)),
    )
    refs = (
        RefFacts(name="audit", snapshot_id=101, is_branch=True),
        RefFacts(name="v1", snapshot_id=7, is_branch=False),
    )
    kept = kept_snapshots(table(head=30, snapshots=(*line, *side), refs=refs), SETTINGS, NOW)
    assert kept == {7, 100, 101, *range(21, 31)}


def changelog(*merged: MergedThrough, newest: int = 4) -> UpkeepFacts:
    aged = [timedelta(days=20 - 4 * number) for number in range(newest)]
    files = tuple(
        DataFileFacts(
            location=str(number),
            bytes=64 * MIB,
            records=10,
            sequence=number,
            written_at=at(age),
        )
        for number, age in enumerate(aged, start=1)
    )
    return table(role=KeptRole.CHANGELOG, files=files, merged=merged)


def test_merged_changes_are_removed_by_age_and_the_slower_mirror_decides() -> None:
    fast = MergedThrough(mirror="public.fast", snapshot_id=4, sequence=4)
    slow = MergedThrough(mirror="public.slow", snapshot_id=2, sequence=2)
    (job,) = plan_jobs(changelog(fast), SETTINGS, NOW)
    assert isinstance(job, RetentionJob)
    assert [file.location for file in job.files] == ["1", "2", "3", "4"]
    (job,) = plan_jobs(changelog(fast, slow), SETTINGS, NOW)
    assert isinstance(job, RetentionJob)
    assert ([file.location for file in job.files], job.merged) == (["1", "2"], 2)
    assert lagging_mirrors(changelog(fast, slow), SETTINGS, NOW) == (
        ("public.slow", timedelta(days=12).total_seconds()),
    )
    unknown = MergedThrough(mirror="public.new")
    assert kinds(changelog(fast, unknown)) == []
    assert kinds(changelog()) == []
    assert kinds(changelog(fast), replace(SETTINGS, retain=None)) == []
    assert kinds(replace(changelog(fast), role=KeptRole.RECORDS)) == []


def test_manifests_are_rewritten_when_there_are_too_many_that_can_be_put_together() -> None:
    assert kinds(table(manifests=201, small_manifests=150)) == [JobKind.MANIFESTS]
    assert kinds(table(manifests=200, small_manifests=200)) == []
    # Large, or of an earlier partitioning.
    assert kinds(table(manifests=500, small_manifests=20)) == []


def test_the_ledger_loses_old_batches_a_day_at_a_time_and_gathers_its_states() -> None:
    def ledger(age: timedelta, commits: int = 0) -> UpkeepFacts:
        file = DataFileFacts(location="1", bytes=10, records=1, written_at=at(age))
        return table(role=KeptRole.LEDGER, files=(file,), commits_since_states=commits)

    assert kinds(ledger(timedelta(days=7, hours=23))) == []
    assert kinds(ledger(timedelta(days=8, hours=1))) == [JobKind.RETENTION]
    assert kinds(ledger(timedelta(0), commits=1_001)) == [JobKind.RETENTION]
    for_ever = replace(SETTINGS, retain=None)
    assert kinds(ledger(timedelta(days=900)), for_ever) == []


def test_files_are_compared_with_snapshots_once_in_an_interval() -> None:
    assert kinds(table(orphans_listed_at=NOW - timedelta(hours=23))) == []
    assert kinds(table(orphans_listed_at=NOW - timedelta(hours=24))) == [JobKind.ORPHANS]
