"""A table is written to while the commit that wrote its marker is proven to be in its history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from frazil import errors
from frazil.codec.marker_json import encode_marker
from frazil.model.marker import MarkerRole, SnapshotRef
from tests.unit.iceberg.memory_commits import (
    INGEST,
    MERGE,
    appended,
    at,
    begun,
    goal,
    marker,
    refuse,
)
from tests.unit.iceberg.memory_table import MemoryTable, Version


@pytest.fixture
def table() -> MemoryTable:
    return begun()


def test_commits_of_others_leave_the_marker_valid(table: MemoryTable) -> None:
    found = marker(table)
    table.change(table.version.foreign())
    table.change(table.version.foreign())
    assert at(table) == found


@pytest.mark.parametrize(
    ("role", "step"),
    [
        (INGEST, "frazil resync shop.orders"),
        (MERGE, "frazil position set shop.orders --role merge"),
    ],
)
def test_a_table_that_was_set_back_is_not_written_to(role: MarkerRole, step: str) -> None:
    table = MemoryTable()
    table.committer.commit(appended(None, 1, role))
    table.committer.commit(appended(1, 2, role))
    table.change(table.version.rolled_back(1).foreign())

    refused = refuse(table, appended(2, 3, role), errors.RolledBackError, "snapshot 2.*history")

    assert isinstance(refused, errors.RolledBackError)
    assert (refused.is_proven, refused.next_step) == (True, step)


def test_a_history_that_was_expired_proves_neither(table: MemoryTable) -> None:
    table.change(table.version.foreign())
    table.version = table.version.expired()

    refused = refuse(
        table, appended(1, 2), errors.RolledBackError, "snapshot 1.*a rollback cannot be ruled out"
    )

    assert isinstance(refused, errors.RolledBackError)
    assert not refused.is_proven
    assert refused.next_step == "frazil position set shop.orders --role ingest"


def test_expiry_alone_is_no_doubt_while_the_log_has_what_it_removed(table: MemoryTable) -> None:
    table.change(table.version.foreign())
    table.change(replace(table.version.expired(), earlier=table.version.earlier))
    assert at(table) == marker(table)


def test_what_was_proven_stays_so_when_its_history_is_expired(table: MemoryTable) -> None:
    table.change(table.version.foreign())
    assert at(table) is not None
    table.change(table.version.foreign())
    kept = tuple(each for each in table.version.snapshots if each["snapshot-id"] > 1)
    table.version = replace(table.version, snapshots=kept, earlier=())
    assert at(table) == marker(table)
    # It was proven of the marker that was there, and of no other one.
    other = encode_marker(goal(8).written_by(SnapshotRef(9, 2)))
    table.version = replace(table.version, texts={"frazil.ingest": other})
    with pytest.raises(errors.RolledBackError):
        at(table)


def test_a_proof_of_one_head_says_nothing_of_a_table_that_was_set_back(table: MemoryTable) -> None:
    table.committer.commit(appended(1, 2))
    table.change(table.version.foreign())
    assert at(table) is not None
    table.change(table.version.rolled_back(1).foreign())
    with pytest.raises(errors.RolledBackError):
        at(table)


def test_a_marker_that_no_commit_wrote_is_none_of_this_table(table: MemoryTable) -> None:
    table.change(table.version.foreign())
    assert at(table) is not None
    table.change(replace(table.version, texts={"frazil.ingest": encode_marker(goal(1))}))
    with pytest.raises(errors.RolledBackError, match="snapshot unknown"):
        at(table)
    table.version = Version(texts=table.version.texts)
    with pytest.raises(errors.RolledBackError):
        at(table)
    text = encode_marker(goal(1).written_by(SnapshotRef(1, 1)))
    table.version = Version(texts={"frazil.ingest": text})
    with pytest.raises(errors.RolledBackError):
        at(table)
