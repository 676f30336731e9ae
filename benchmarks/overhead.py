"""The size of a mirror compared with the same rows as plain Parquet, and that of its index."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.merge.merge_contest import Contest, facts, rows_text
from benchmarks.support.bench_lake import Shape
from benchmarks.support.report import Figure, Report
from frazil.merge.index_operations import load_index_facts

if TYPE_CHECKING:
    from benchmarks.support.bench_lake import BenchLake
    from benchmarks.support.setting import Setting

_AT_MOST_PERCENT = 5
_MIB = 2**20


def measure(setting: Setting) -> Report:
    """After the first merge, and after some small ones with the dead rows they leave behind."""
    rows, merges, changes = setting.pick(small=(4_000, 1, 100), full=(10_000_000, 10, 10_000))
    with setting.open_lake() as lake:
        contest = Contest(lake, Shape(rows=rows), ())
        figures = _figures(lake, contest, f"{rows_text(rows)} rows, first merge")
        for _ in range(merges):
            contest.run(changes, is_warm_up=True)
        figures += _figures(lake, contest, f"{rows_text(rows)} rows, {merges} more merges")
        found = contest.digest(contest.tables.mirror)[0]
        if found != contest.feed.live:
            message = f"expected {contest.feed.live} rows, found {found}"
            raise AssertionError(message)
    summary = {
        **facts([contest]),
        "plain": "Spark's own Parquet writer, zstd, of the mirror's rows as they are read",
        "counted": "what the current snapshot needs: data, deletes, manifests, manifest list and "
        "metadata file; older snapshots are kept until they expire",
    }
    return Report(figures=tuple(figures), facts=summary)


def _figures(lake: BenchLake, contest: Contest, when: str) -> list[Figure]:
    plain = _plain_bytes(lake, contest)
    data, metadata = _table_bytes(lake, contest)
    settings = lake.settings(contest.tables)
    index = load_index_facts(lake.session, lake.lake, settings)
    head = 0 if index.head is None else _file_bytes(index.head)
    runs = sum(run.bytes for run in index.runs)
    extra = 100 * ((data + metadata) / plain - 1)
    return [
        Figure(f"plain Parquet of {when}", plain / _MIB, "MiB"),
        Figure(f"data and deletes of {when}", data / _MIB, "MiB"),
        Figure(f"metadata of {when}", metadata / _MIB, "MiB"),
        Figure(f"index of {when}", (runs + head) / _MIB, "MiB"),
        Figure(
            f"mirror without index, {when}", extra, "% more", "under 5 %", at_most=_AT_MOST_PERCENT
        ),
        Figure(f"index alone, {when}", 100 * (runs + head) / plain, "% more"),
    ]


def _plain_bytes(lake: BenchLake, contest: Contest) -> int:
    folder = lake.folder / "plain"
    mirror = contest.tables.mirror.quoted
    lake.session.sql(f"refresh table {mirror}")
    rows = lake.session.table(mirror)
    rows.write.mode("overwrite").option("compression", "zstd").parquet(str(folder))
    total = sum(each.stat().st_size for each in folder.rglob("*.parquet"))
    shutil.rmtree(folder)
    return total


def _table_bytes(lake: BenchLake, contest: Contest) -> tuple[int, int]:
    """Data with deletes, and metadata, of the current snapshot; each file once."""
    mirror = contest.tables.mirror
    table = mirror.quoted

    def total(query: str) -> int:
        ((number,),) = lake.session.sql(query).collect()
        return int(number or 0)

    data = total(
        "select sum(file_size_in_bytes) from "  # noqa: S608
        f"(select distinct file_path, file_size_in_bytes from {table}.files)"
    )
    manifests = total(f"select sum(length) from {table}.manifests")  # noqa: S608
    opened = lake.lake.open(mirror)
    state = opened.load_state()
    if state.head is None:
        raise AssertionError("the mirror is empty")
    ((listed,),) = lake.session.sql(
        f"select manifest_list from {table}.snapshots where snapshot_id = {state.head.id}"  # noqa: S608
    ).collect()
    metadata = opened.load_metadata_location()
    return data, manifests + _file_bytes(listed) + _file_bytes(metadata)


def _file_bytes(location: str) -> int:
    return Path(location.removeprefix("file:")).stat().st_size
