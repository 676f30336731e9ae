"""The key index alone: how long a build and a lookup take, and how large it is."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.merge.merge_contest import SEED, rows_text
from benchmarks.support.bench_lake import KeyKind, Shape, print_progress
from benchmarks.support.process_tree import Usage, measure_call
from benchmarks.support.report import Comparison, Figure, Report, Series
from frazil.clients.iceberg.file_system import InputFiles
from frazil.codec.key_index.head import read_head
from frazil.merge.index_operations import load_index_facts, rebuild_index
from frazil.mirror.index.loading import HEAD_PROPERTY
from frazil.mirror.index.locating import KeyLocator, TaskIndex
from frazil.model.schema.types import Primitive
from tests.support.codec.key_hash import hash_key

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.support.bench_lake import BenchLake, Tables
    from benchmarks.support.setting import Setting

# Cores that a scan may use, as Spark may.
_THREADS = 2
_BUILD_MUST_SECONDS = 180
_WARM_SECONDS = 0.1
# Bytes for each key: aimed for, and required.
_BYTES = {KeyKind.INTEGER: (10, 12), KeyKind.UUID: (18, 24), KeyKind.TEXT: (18, 24)}


@dataclass(frozen=True, slots=True)
class _Place:
    """Row positions of keys: sums that agree only when every position does."""

    found: int
    positions: int


def measure(setting: Setting) -> Report:
    """Build, size, then lookups of three sizes with a warm and a cold cache."""
    rows, others = setting.pick(small=(4_000, 2_000), full=(40_000_000, 10_000_000))
    counts = setting.pick(small=(10, 100), full=(10_000, 100_000, 1_000_000))
    turns = setting.pick(small=1, full=3)
    with setting.open_lake() as lake:
        tables = lake.copies(Shape(rows=rows))
        built, sorted_ = _builds(lake, tables, turns)
        lookups = [
            comparison
            for count in counts
            for comparison in _Lookups(lake, tables, setting.folder).compare(count, turns)
        ]
        sizes = [_size(lake, tables)]
        for key in (KeyKind.UUID, KeyKind.TEXT):
            other = lake.copies(Shape(rows=others, key=key))
            rebuild_index(lake.session, lake.lake, lake.settings(other))
            sizes.append(_size(lake, other))
    build = Comparison(built, sorted_, goal="none; for the record")
    seconds = Figure(built.name, built.middle, "s", "under 180 s", at_most=_BUILD_MUST_SECONDS)
    warm = [each.ours for each in lookups if "warm" in each.ours.name]
    first = Figure(warm[0].name, warm[0].middle * 1000, "ms", "under 100 ms", _WARM_SECONDS * 1000)
    return Report(
        (build, *lookups),
        (seconds, first, *sizes),
        {"seed": SEED, "set_up_seconds": {tables.shape.name: tables.made}},
    )


def _builds(lake: BenchLake, tables: Tables, turns: int) -> tuple[Series, Series]:
    """A rebuild with its commit, compared with Spark sorting the same into Parquet."""
    ours: list[Usage] = []
    spark: list[Usage] = []
    target = lake.folder / "sorted"
    for _ in range(turns):
        lake.settle()
        _, usage = measure_call(
            lambda: rebuild_index(lake.session, lake.lake, lake.settings(tables))
        )
        ours.append(usage)
        lake.settle()
        rows = lake.session.table(tables.mirror.quoted)
        hashed = rows.selectExpr("xxhash64(id) as hi", "_file as file", "_pos as pos").orderBy("hi")
        writing = hashed.write.mode("overwrite").option("compression", "zstd")
        _, usage = measure_call(lambda writing=writing: writing.parquet(str(target)))  # type: ignore[misc]
        spark.append(usage)
        print_progress(
            f"index built in {ours[-1].seconds:.1f} s, sorted by Spark in {usage.seconds:.1f} s"
        )
    shutil.rmtree(target, ignore_errors=True)
    facts = load_index_facts(lake.session, lake.lake, lake.settings(tables))
    if facts.state != "current" or facts.entries != tables.shape.rows:
        message = f"expected a current index of {tables.shape.rows} entries, found {facts}"
        raise AssertionError(message)
    where = rows_text(tables.shape.rows)
    return (
        Series.of(f"index of {where} built and committed", ours),
        Series.of(f"hash and row position of {where} sorted to Parquet by Spark", spark),
    )


def _size(lake: BenchLake, tables: Tables) -> Figure:
    facts = load_index_facts(lake.session, lake.lake, lake.settings(tables))
    goal, must = _BYTES[tables.shape.key]
    return Figure(
        f"index of {rows_text(tables.shape.rows)}, {tables.shape.key} keys",
        facts.bytes / facts.entries,
        "bytes a key",
        f"{goal} (required {must})",
        goal,
        must,
    )


class _Lookups:
    """The same random keys, looked up in the index, in the key column and by Spark."""

    def __init__(self, lake: BenchLake, tables: Tables, folder: Path) -> None:
        self._lake = lake
        self._tables = tables
        self._cold = folder / "cold"
        self._index = _task_index(lake, tables)
        self._dice = np.random.default_rng(SEED)

    def compare(self, count: int, turns: int) -> list[Comparison]:
        """One more turn than requested is the warm-up."""
        measured: dict[str, list[Usage]] = {"warm": [], "cold": [], "scan": [], "join": []}
        for number in range(turns + 1):
            keys = self._draw(count)
            found = {name: self._turn(name, keys) for name in measured}
            locations = {location for location, _ in found.values()}
            if locations != {next(iter(locations))} or next(iter(locations)).found != count:
                message = f"expected all {count} keys at the same positions, found {found}"
                raise AssertionError(message)
            for name, (_, usage) in found.items():
                measured[name] += [usage] if number else []
        of = f"{count:,} of {rows_text(self._tables.shape.rows)}"
        scan = Series.of(f"scan of the key column for {of}", measured["scan"])
        join = Series.of(f"Spark join with {of}", measured["join"])
        warm = Series.of(f"index lookup of {of}, warm", measured["warm"])
        cold = Series.of(f"index lookup of {of}, cold", measured["cold"])
        print_progress(f"lookup of {of}: warm {warm.middle:.3f} s, cold {cold.middle:.3f} s")
        record = "none; for the record"
        return [Comparison(ours, other, record) for ours in (warm, cold) for other in (scan, join)]

    def _draw(self, count: int) -> NDArray[np.int64]:
        found = np.empty(0, np.int64)
        while len(found) < count:
            drawn = self._dice.integers(0, self._tables.shape.rows, 2 * count)
            found = np.unique(np.concatenate([found, drawn]))
        return self._dice.permutation(found)[:count]

    def _turn(self, name: str, keys: NDArray[np.int64]) -> tuple[_Place, Usage]:
        if name == "join":
            return self._join(keys)
        if name == "scan":
            return measure_call(lambda: self._scan(keys))
        if name == "warm":
            return measure_call(lambda: _ask(self._index, keys))
        folder = self._cold / uuid4().hex
        found = measure_call(lambda: _ask(replace(self._index, cache_dir=str(folder)), keys))
        shutil.rmtree(folder, ignore_errors=True)
        return found

    def _scan(self, keys: NDArray[np.int64]) -> _Place:
        wanted = pa.array(keys)

        def positions(location: str) -> tuple[int, int]:
            column = pq.read_table(location.removeprefix("file:"), columns=["id"]).column("id")
            at = np.flatnonzero(pc.is_in(column, value_set=wanted).to_numpy())
            return len(at), int(at.sum())

        with ThreadPoolExecutor(_THREADS) as pool:
            parts = list(pool.map(positions, [each.location for each in self._index.files]))
        return _Place(sum(count for count, _ in parts), sum(total for _, total in parts))

    def _join(self, keys: NDArray[np.int64]) -> tuple[_Place, Usage]:
        session = self._lake.session
        session.createDataFrame(pa.table({"n": keys})).createOrReplaceTempView("wanted")
        statement = (
            "select /*+ broadcast(w) */ count(*) as found, sum(_pos) as positions "  # noqa: S608
            f"from {self._tables.mirror.quoted} t join wanted w on t.id = w.n"
        )
        rows, usage = measure_call(lambda: session.sql(statement).collect())
        return _Place(rows[0].found, rows[0].positions), usage


def _task_index(lake: BenchLake, tables: Tables) -> TaskIndex:
    mirror = lake.lake.open(tables.mirror)
    head = mirror.load_state().head
    if head is None:
        raise AssertionError("the mirror is empty")
    io_properties = mirror.load_write_target().io_properties
    data = InputFiles(dict(io_properties)).read(head.summary[HEAD_PROPERTY])
    manifest, young = read_head(data)
    settings = lake.settings(tables).index
    return TaskIndex(
        runs=manifest.runs,
        young=young,
        files=manifest.files,
        io_properties=io_properties,
        cache_dir=str(settings.cache_dir),
        cache_bytes=settings.cache_bytes,
    )


def _ask(index: TaskIndex, keys: NDArray[np.int64]) -> _Place:
    """As a task does it: hash, sort, look up."""
    hi = np.sort(_xxh64(keys))
    found = KeyLocator(index).locate(hi, np.zeros(len(hi), np.uint64))
    return _Place(len(found.key), int(found.position.sum()))


def _xxh64(keys: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The hash of integer keys, many at a time."""
    first, second, third, fourth, fifth = (
        np.uint64(prime)
        for prime in (
            0x9E3779B185EBCA87,
            0xC2B2AE3D27D4EB4F,
            0x165667B19E3779F9,
            0x85EBCA77C2B2AE63,
            0x27D4EB2F165667C5,
        )
    )
    with np.errstate(over="ignore"):
        lane = _rotated(keys.view(np.uint64) * second, 31) * first
        hashed = (np.uint64(42) + fifth + np.uint64(8)) ^ lane
        hashed = _rotated(hashed, 27) * first + fourth
        hashed = (hashed ^ (hashed >> np.uint64(33))) * second
        hashed = (hashed ^ (hashed >> np.uint64(29))) * third
        hashed ^= hashed >> np.uint64(32)
    if int(hashed[0]) != hash_key([int(keys[0])], [Primitive.LONG])[0]:
        raise AssertionError("the hash is not the one that is specified")
    return hashed


def _rotated(number: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    rotated: NDArray[np.uint64] = (number << np.uint64(bits)) | (number >> np.uint64(64 - bits))
    return rotated
