"""Segments of topics into tables, next to the same segments fetched and decoded alone."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.support.bench_lake import catalog_document, print_progress
from benchmarks.support.process_tree import Usage, cpu_seconds_of, measure_call
from benchmarks.support.report import Comparison, Figure, Report, Series
from benchmarks.support.source_server import require_equal
from benchmarks.support.topic_segments import NAMESPACE, VALUE_BYTES, TopicShape, open_topic_bucket
from frazil.codec.kfs.compression import BatchCompression
from frazil.codec.kfs.records import decode_records
from frazil.codec.kfs.segment import parse_segment
from frazil.config import load_config
from frazil.pipeline.capture import build_capture, build_ingest_loop
from frazil.pipeline.loops.loop import Ending, StopRequest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from benchmarks.support.bench_lake import BenchLake
    from benchmarks.support.setting import Setting
    from benchmarks.support.topic_segments import StoredTopic, TopicBucket
    from frazil.clients.object_store import Bucket
    from frazil.config import Config
    from frazil.demo.services import ObjectStore
    from frazil.ingest.report import BatchReport
    from frazil.pipeline.next_step import NextStep

_MILLION = 1_000_000
_MIB = 2**20
# Of the rate of decoding alone.
_LIMIT_GOAL = 0.5
# Records a second that one core decodes.
_DECODE_GOAL = _MILLION
_SMALL_SECONDS_GOAL = 30.0
_PYTHON_MIB_GOAL = 1.5 * 1024
_DOCUMENT = """
pipeline: {pipeline}
{catalog}
storage:
  s3:
    endpoint: '{endpoint}'
    region: '{region}'
    path_style: true
    access_key_id: '{access_key}'
    secret_access_key: '{secret_key}'
source:
  kind: kafscale
  bucket: '{bucket}'
  namespace: {namespace}
  offsets: {{backend: none}}
  topics: [{{topic: {topic}, table: '{pipeline}.{topic}'}}]
"""
_PIPELINE = "kafscale_{topic}"
_IN_LAKE = "select count(*), sum(`offset`), sum(crc32(value)) from {table}"
_LAYOUT = (
    "Segments are in SeaweedFS on this machine, tables in a folder. Values have 200 bytes, no two "
    "of a turn alike, without keys and headers; small segments have one batch of ten records, "
    "large ones 40 batches of 500, which are 4 MiB before they are compressed. Every turn has "
    "segments of its own, which are in the bucket before they are read, and goes on where the "
    "pipeline of the topic was. Our clock goes from the start of the loop, over listing, footers, "
    "tasks and commits of table and ledger, to the plan that finds nothing more. Decoding alone "
    "has one process for each of the session's tasks, started before: each fetches its share of "
    "the same objects with the same reader, checks and decodes them, and discards the records. "
    "Who goes first alternates. Decoding from memory is one process, and its rate is by processor "
    "time."
)


@dataclass(slots=True)
class _Contest:
    """One topic and its pipeline, and the same segments decoded alone."""

    lake: BenchLake
    service: ObjectStore
    bucket: TopicBucket
    topic: StoredTopic
    processes: Executor
    ours: list[Usage] = field(default_factory=list)
    parts: list[dict[str, float]] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The topic's, which is the table's."""
        return self.topic.shape.name

    def run(self, number: int, *, is_warm_up: bool) -> None:
        """One turn of each, with segments of its own."""
        keys = self.topic.keys
        if number:
            keys = self.processes.submit(self.bucket.repeat, self.topic, number).result()
        sides = (self._run_ours, partial(self._run_bare, keys))
        for side in sides if number % 2 else sides[::-1]:
            self.lake.settle()
            side()
        self._check(number + 1)
        print_progress(
            f"{self.name}: ours {self.ours[-1].seconds:.2f} s {self.parts[-1]}, decoding alone "
            f"{self.bare[-1]:.2f} s{' (warm-up)' if is_warm_up else ''}"
        )
        if is_warm_up:
            for kept in (self.ours, self.parts, self.bare, self.batches):
                kept.clear()

    def series(self) -> Series:
        """What ours took."""
        return Series.of(f"frazil, {self._what}", self.ours, self.parts)

    def limit(self) -> Series:
        """What decoding alone took; its processes are not among those that are watched."""
        return Series(f"fetched and decoded alone, {self._what}", tuple(self.bare))

    @property
    def _what(self) -> str:
        shape = self.topic.shape
        size = "of 10 records" if shape.batches == 1 else "of 4 MiB"
        return f"{shape.segments:,} segments {size}, {shape.compression.name.lower()}"

    def _run_ours(self) -> None:
        config = self._config()
        capture = build_capture(self.lake.session, config)
        capture.ingester.start()
        reports: list[BatchReport] = []
        loop = build_ingest_loop(
            self.lake.session,
            config,
            capture,
            stop=StopRequest(),
            on_report=reports.append,
            on_error=_fail,
        )
        before = self._store_seconds
        try:
            ending, usage = measure_call(partial(loop.run, once=True))
        finally:
            capture.claim.release()
        if ending is not Ending.DONE:
            message = f"the ingest ended with {ending}"
            raise AssertionError(message)
        self.ours.append(usage)
        batches = sum(each.seconds for each in reports)
        store = self._store_seconds - before
        self.parts.append(
            {"its batches": round(batches, 3), "the store's processor": round(store, 2)}
        )
        self.batches.append(len(reports))

    @property
    def _store_seconds(self) -> float:
        pid = self.service.service.pid
        if pid is None:
            raise AssertionError("the store has ended")
        return cpu_seconds_of(pid)

    def _check(self, turns: int) -> None:
        """All records of all turns so far, once."""
        session, shape = self.lake.session, self.topic.shape
        table = f"lake.{_PIPELINE.format(topic=self.name)}.{self.name}"
        session.sql(f"refresh table {table}")
        (found,) = session.sql(_IN_LAKE.format(table=table)).collect()
        each = turns * shape.rows_a_partition
        offsets = shape.partitions * (each * (each - 1) // 2)
        wanted = (turns * shape.rows, offsets, turns * self.topic.checksums)
        require_equal(table, tuple(found), wanted)

    def _run_bare(self, keys: Sequence[str]) -> None:
        count = self.lake.session.sparkContext.defaultParallelism
        shares = [keys[number::count] for number in range(count)]
        began = time.perf_counter()
        running = [self.processes.submit(_fetch_and_decode, self.bucket, each) for each in shares]
        rows = sum(each.result() for each in running)
        self.bare.append(time.perf_counter() - began)
        require_equal("decoding alone", (rows,), (self.topic.shape.rows,))

    def _config(self) -> Config:
        folder, service = self.lake.folder, self.service
        pipeline = _PIPELINE.format(topic=self.name)
        document = folder / f"{pipeline}.yaml"
        document.write_text(
            _DOCUMENT.format(
                pipeline=pipeline,
                catalog=catalog_document(folder),
                endpoint=service.endpoint,
                region=service.region,
                access_key=service.access_key,
                secret_key=service.secret_key,
                bucket=service.bucket,
                namespace=NAMESPACE,
                topic=self.name,
            )
        )
        return load_config(document, environ={}).config


def _fail(error: Exception, _step: NextStep) -> None:
    raise AssertionError("the ingest failed") from error


def _fetch_and_decode(bucket: Bucket, keys: Sequence[str]) -> int:
    rows = 0
    for _, data in bucket.read_each(keys):
        if not isinstance(data, bytes):
            raise data
        rows += sum(each.num_rows for each in decode_records(parse_segment(data).batches))
    return rows


def _decoding_rates(bucket: Bucket, keys: Sequence[str], repetitions: int) -> list[float]:
    """Records by second of processor time, from memory."""
    segments = [data for _, data in bucket.read_each(keys) if isinstance(data, bytes)]
    rates = []
    for _ in range(repetitions):
        rows, began = 0, time.process_time()
        for data in segments:
            rows += sum(each.num_rows for each in decode_records(parse_segment(data).batches))
        rates.append(rows / (time.process_time() - began))
    return rates


def measure(setting: Setting) -> Report:
    """Both by turns, topic by topic; every table is compared with what was written."""
    shapes = _shapes(setting)
    warm_ups, turns = setting.pick(small=(0, 1), full=(1, 3))
    with (
        setting.open_lake() as lake,
        open_topic_bucket() as (service, bucket),
        ProcessPoolExecutor(
            lake.session.sparkContext.defaultParallelism, multiprocessing.get_context("spawn")
        ) as processes,
    ):
        started = time.perf_counter()
        contests = []
        for shape in shapes:
            print_progress(f"making {shape.segments:,} segments, {shape.compression.name.lower()}")
            topic = processes.submit(bucket.fill, shape).result()
            contests.append(_Contest(lake, service, bucket, topic, processes))
        made = time.perf_counter() - started
        for number in range(warm_ups + turns):
            for contest in contests:
                contest.run(number, is_warm_up=number < warm_ups)
        rates = {
            each.name: processes.submit(
                _decoding_rates, bucket, each.topic.keys[:10], 2 + turns
            ).result()
            for each in contests
        }
    return _report(contests, rates, made)


def _shapes(setting: Setting) -> list[TopicShape]:
    segments, large, batches = setting.pick(small=(40, 4, 2), full=(5_000, 50, 40))
    shapes = [TopicShape(name="small", partitions=4, segments=segments, batches=1, records=10)]
    shapes += [
        TopicShape(
            name=f"large_{compression.name.lower()}",
            partitions=2,
            segments=large,
            batches=batches,
            records=500,
            compression=compression,
        )
        for compression in BatchCompression
    ]
    return shapes


def _report(contests: list[_Contest], rates: dict[str, list[float]], made: float) -> Report:
    small, *large = contests
    comparisons = [
        Comparison(each.series(), each.limit(), goal="none; mostly requests, and two for a segment")
        for each in contests[:1]
    ]
    comparisons += [
        Comparison(
            each.series(),
            each.limit(),
            goal=f"at least {_LIMIT_GOAL:.0%} of its rate",
            at_most=1 / _LIMIT_GOAL,
        )
        for each in large
    ]
    usages = [usage for each in contests for usage in each.ours]
    figures = [
        Figure(
            f"{small.topic.shape.segments:,} small segments, the slowest turn",
            max(small.series().seconds),
            "s",
            f"under {_SMALL_SECONDS_GOAL:.0f} s",
            at_most=_SMALL_SECONDS_GOAL,
        ),
        Figure(
            "driver and Python workers, the most of all turns",
            max(each.python_bytes for each in usages) / _MIB,
            "MiB",
            "under 1.5 GiB",
            at_most=_PYTHON_MIB_GOAL,
        ),
    ]
    for each in large:
        codec = each.topic.shape.compression
        is_plain = codec is BatchCompression.NONE
        figures.append(
            Figure(
                f"decoded from memory by one core, {codec.name.lower()}",
                median(rates[each.name]),
                "records/s",
                "at least a million" if is_plain else "",
                at_least=_DECODE_GOAL if is_plain else None,
            )
        )
    figures += [
        Figure(f"frazil, {each.name}", each.topic.shape.rows / each.series().middle, "records/s")
        for each in contests
    ]
    facts = {
        "layout": _LAYOUT,
        "set_up_seconds": round(made, 1),
        "value_bytes": VALUE_BYTES,
        "rows": {each.name: each.topic.shape.rows for each in contests},
        "stored_mib": {each.name: round(each.topic.size / _MIB, 1) for each in contests},
        "batches": {each.name: each.batches for each in contests},
        "slowest_decoding": {name: round(min(found)) for name, found in rates.items()},
    }
    return Report(tuple(comparisons), tuple(figures), facts)
