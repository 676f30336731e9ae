"""Merges during compaction, appends and orphan removal, and changes of unknown keys."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError

from frazil.errors import CommitConflictError
from frazil.hooks import armed
from frazil.merge.planning.settings import IndexSettings
from frazil.merge.report import MergeAction
from tests.support.lake.mirrored import EVERYTHING, Mirrored, attach_files
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.lake import Lake

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return attach_files(spark, tmp_path_factory.mktemp("concurrency"))


@pytest.fixture
def table(spark: SparkSession, lake: Lake, tmp_path: Path) -> Mirrored:
    return Mirrored.create(spark, lake, index=IndexSettings(cache_dir=tmp_path, young_entries=16))


@pytest.mark.fault("E5", "E6")
def test_an_update_of_an_unknown_key_inserts_it_and_a_delete_has_no_effect(
    table: Mirrored,
) -> None:
    table.change_and_merge({1: "known", 2: "known"})

    (commit,) = table.change_and_merge({1: "again", 7: "unknown", 8: None}).commits

    table.check()
    assert table.expected == {1: ("again", "p1"), 2: ("known", "p2"), 7: ("unknown", "p1")}
    assert commit.unknown_updates == 1
    assert commit.counts[MergeAction.NONE] == 1


@pytest.mark.fault("X5")
def test_orphan_removal_keeps_the_files_of_a_merge_in_progress(
    table: Mirrored, tmp_path: Path
) -> None:
    table.change_and_merge(dict.fromkeys(range(20), "first"))
    table.change(dict.fromkeys(range(0, 20, 2), "second"))
    gate = tmp_path / "gate"
    gate.touch()
    merge = threading.Thread(target=table.merge)
    with armed(f"merge.written=hold({gate})@1"):
        merge.start()
        try:
            wait_until(gate.with_name("gate.reached").exists)
            # With the age that Iceberg itself takes for safe.
            table.call("remove_orphan_files")
        finally:
            gate.unlink()
            merge.join()

    table.check()


@pytest.mark.fault("X6")
@pytest.mark.parametrize("rounds", [4, pytest.param(100, marks=[pytest.mark.deep])])
def test_merges_compactions_and_appends_at_once_end_with_the_right_rows(
    table: Mirrored, rounds: int
) -> None:
    table.change_and_merge(dict.fromkeys(range(50), "first"))
    crowd = Crowd(table, rounds)

    with ThreadPoolExecutor(2) as others:
        working = [others.submit(crowd.append), others.submit(crowd.compact)]
        while not crowd.is_done.is_set():
            crowd.merge()
    for each in working:
        each.result()
    table.merge()

    table.check()
    # No starvation: merges land between compactions, and appends all the time.
    assert crowd.merges >= rounds
    assert crowd.appends > 0


class Crowd:
    """Who works on one mirror and its changelog at the same time."""

    def __init__(self, table: Mirrored, rounds: int) -> None:
        self._table = table
        self._rounds = rounds
        self.is_done = threading.Event()
        self.appends = self.merges = 0

    def append(self) -> None:
        while not self.is_done.is_set():
            at = self.appends = self.appends + 1
            keys = range(at % 7, 60, 7)
            self._table.change({key: None if key % 11 == at % 11 else f"v{at}" for key in keys})

    def merge(self) -> None:
        try:
            self._table.merge()
        except CommitConflictError:
            return
        self.merges += 1

    def compact(self) -> None:
        """Now and then: continuous compaction could refuse every merge."""
        try:
            for _ in range(self._rounds):
                before = self.merges
                # A merge that deleted rows of the files meanwhile refuses it, and rightly so.
                with suppress(Py4JJavaError):
                    self._table.call("rewrite_data_files", arguments=EVERYTHING)
                wait_until(lambda before=before: self.merges > before)  # type: ignore[misc]
        finally:
            self.is_done.set()
