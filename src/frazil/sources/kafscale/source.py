"""Records of topics as a source: segments are listed, chosen, and read by tasks.

Who reads a partition is decided by its lease, and what was captured of it by the marker of its
table alone: a lease that is lost costs the work of a batch, never a record. Every plan lists what
is new, reads the footers of the segments it chooses, and leaves their records to the tasks.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

from frazil.clients.object_store import CONNECTIONS
from frazil.config.models.kafscale_source import OnGap
from frazil.errors import (
    ConfigError,
    LeaseLostError,
    MalformedChangeError,
    SchemaError,
    SourceUnavailableError,
)
from frazil.hooks import SystemClock
from frazil.sources.kafscale.coordination.keys import NOTHING_PROCESSED
from frazil.sources.kafscale.learnt_columns import learn_columns
from frazil.sources.kafscale.reading.reader import SegmentReader
from frazil.sources.kafscale.segments.discovery import SegmentBound
from frazil.sources.kafscale.segments.gap_watch import GAP_SECONDS, GapWatch
from frazil.sources.kafscale.segments.planning import (
    PartitionFacts,
    bound_of,
    choose,
    join_splits,
    line_up,
    split_batch,
)
from frazil.sources.kafscale.segments.starts import (
    Beginnings,
    continue_at,
    name_offsets,
    parse_offsets,
)
from frazil.sources.kafscale.source_identity import (
    explain_topic_change,
    require_same_source,
    source_identity,
)
from frazil.sources.protocol import Batch, Restart, TableFailure, TablePart
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from frazil.clients.object_store import Bucket
    from frazil.config.models.kafscale_source import KafscaleSection, TopicColumn
    from frazil.errors import FrazilError
    from frazil.hooks import Clock
    from frazil.model.marker import Marker, Position
    from frazil.model.source_table import SourceTable
    from frazil.sources.kafscale.coordination.workers import Coordination
    from frazil.sources.kafscale.records.topic_plan import TopicPlan
    from frazil.sources.kafscale.segments.cluster_partitions import ClusterPartitions
    from frazil.sources.kafscale.segments.discovery import (
        ListedSegments,
        SegmentListing,
        SegmentObject,
    )
    from frazil.sources.kafscale.segments.object_keys import TopicPartition
    from frazil.sources.kafscale.segments.planned import PlannedSegment
    from frazil.sources.kafscale.segments.planning import PartitionLine
    from frazil.sources.kafscale.topic_tables import TopicTables
    from frazil.sources.protocol import Limit, PartitionFailure, Progress

_log = get_logger(__name__)


class KafscaleSource:
    """The mapped topics of one bucket; lives on the driver."""

    def __init__(
        self,
        section: KafscaleSection,
        bucket: Bucket,
        *,
        listing: SegmentListing,
        cluster: ClusterPartitions,
        tables: TopicTables,
        coordination: Coordination,
        clock: Clock | None = None,
        gap_seconds: float = GAP_SECONDS,
    ) -> None:
        self._section = section
        self._bucket = bucket
        self._listing = listing
        self._cluster = cluster
        self._tables = tables
        self._coordination = coordination
        self._clock = clock or SystemClock()
        self._gaps = GapWatch(self._clock, gap_seconds)
        self._woken = Event()
        self._has_more = False
        # The offset that follows what was planned, of the partitions that are read; None before.
        self._planned: dict[TopicPartition, int] | None = None
        # Where tables and ledger were when the source was prepared.
        self._since: dict[TopicPartition, int] = {}
        # Offsets that are known to be where a segment begins or will begin.
        self._aligned: dict[TopicPartition, int] = {}
        # When each partition had its last turn.
        self._turns: dict[TopicPartition, int] = {}
        # Partitions whose offsets are published as far as this worker knows.
        self._settled: set[TopicPartition] = set()

    @property
    def identity(self) -> str:
        """The bucket and the namespace that offsets are of."""
        return source_identity(self._section)

    @property
    def generation(self) -> int:
        """Brokers continue offsets, whatever happens to them."""
        return 0

    def discover(self) -> tuple[SourceTable, ...]:
        """The mapped topics, also those without a segment yet."""
        return tuple(self._tables.declared(name) for name in self._tables.names)

    def explain_identity_change(
        self,
        before: str,
        now: str,
        *,
        was_gone: bool = False,  # noqa: ARG002 - a topic is known by its name alone
    ) -> tuple[str, ...]:
        """A topic that was made again continues its offsets."""
        return explain_topic_change(before, now)

    def selects(self, table: str) -> bool:
        """Whether it is mapped."""
        return table in self._tables.names

    def prepare(
        self,
        tables: Collection[str],  # noqa: ARG002 - nothing is to be created
        since: Marker | None,
        reached: Collection[Position] = (),
    ) -> Position:
        """Nothing is to be created: partitions begin when they are first held."""
        self._since = {}
        for position in reached:
            self._since |= {
                partition: max(at, self._since.get(partition, 0))
                for partition, at in parse_offsets(position).items()
            }
        if since is None:
            return {}
        require_same_source(self.identity, since)
        recorded = parse_offsets(since.position)
        self._since |= {name: at for name, at in recorded.items() if name not in self._since}
        return since.position

    # --- planning ---

    def plan(self, progress: Progress, limit: Limit) -> Batch | None:
        """The next segments of the partitions that this worker holds."""
        self._planned = {}
        if progress.acknowledged is None:
            return None
        # Also of topics that are not streamed now: whoever has one of these restarts it.
        partitions = self._cluster.find(self._tables.names)
        held = self._coordination.rebalance(partitions)
        mine = sorted(each for each in held if each.topic in progress.tables)
        recorded = parse_offsets(progress.acknowledged)
        self._publish_again(mine, recorded)
        unknown = [each for each in mine if each not in recorded]
        if unknown:
            beginnings = Beginnings(self._listing, self._coordination.offsets.load)
            begun = beginnings.find(unknown, partitions, recorded, progress.tables)
            known = {each: recorded[each] for each in mine if each in recorded}
            self._planned = known | {each: begun[each] for each in unknown}
            # Before the first record is read: one that expires by then was not lost silently.
            reader = SegmentReader(bucket=self._bucket, topics={})
            return Batch(reader=reader, splits=(), parts=(), end=name_offsets(begun))
        return self._batch(mine, progress, recorded, limit)

    def _batch(
        self,
        held: Sequence[TopicPartition],
        progress: Progress,
        recorded: Mapping[TopicPartition, int],
        limit: Limit,
    ) -> Batch | None:
        starts = {
            each: continue_at(each, progress.tables[each.topic], recorded[each]) for each in held
        }
        stops = {each: progress.stopped.get(str(each), sys.maxsize) for each in held}
        filled = self._find_filled(stops)
        stops |= dict.fromkeys(filled, sys.maxsize)
        # One that is at its stop has nothing to read, however much there is behind it.
        readable = {each: at for each, at in starts.items() if at < stops[each]}
        lines, waiting = self._line_up(readable, stops, limit)
        failures = self._judge_gaps(lines)
        chosen = {each.partition: each.segments for each in lines if each.segments}
        tables, plans, refused = self._load_tables(chosen, progress)
        chosen = {each: found for each, found in chosen.items() if each.topic in tables}
        # Of those that move: looking again at once brings nothing to one that has to wait.
        # One that had no turn is not known to wait, and comes first the next time.
        without_turn = waiting - {each.partition for each in lines}
        self._has_more = bool(chosen) and not waiting.isdisjoint(chosen.keys() | without_turn)
        moved = {each: found[-1].next_offset for each, found in chosen.items()}
        planned = {each: max(moved.get(each, 0), at) for each, at in starts.items()}
        lost = {each.partition for each in failures}
        # One that is stopped goes nowhere.
        self._planned = {
            each: at
            for each, at in planned.items()
            if (str(each) not in progress.stopped or each in filled) and str(each) not in lost
        }
        self._aligned |= {each: planned[each] for each in moved}
        resumed = [each for each in filled if each in moved]
        self._gaps.forget(resumed)
        end = {each: at for each, at in planned.items() if at != recorded[each]}
        if not (end or failures or refused):
            return None
        return Batch(
            reader=SegmentReader(bucket=self._bucket, topics=plans),
            splits=split_batch(chosen),
            parts=tuple(
                TablePart(
                    table=tables[topic],
                    start=progress.tables[topic].position,
                    goal=name_offsets(
                        {each: at for each, at in moved.items() if each.topic == topic}
                    ),
                )
                for topic in tables
            ),
            end=name_offsets(end),
            failures=(*failures, *refused),
            resumed=tuple(map(str, resumed)),
            check=partial(self._coordination.leases.require_held, tuple(moved)),
            join=join_splits,
        )

    def _judge_gaps(self, lines: Sequence[PartitionLine]) -> list[PartitionFailure]:
        """Partitions that stop where offsets are missing; where gaps are recorded, none."""
        if self._section.on_gap is OnGap.RECORD:
            for each in lines:
                self._gaps.note(each)
            return []
        return [found for each in lines if (found := self._gaps.judge(each)) is not None]

    def _find_filled(self, stops: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Partitions that stopped at a gap where a segment begins by now."""
        filled = []
        for each in self._gaps.due(stops):
            found = self._listing.list_new(each, stops[each], SegmentBound(bytes=1, segments=1))
            if found.segments and found.segments[0].base_offset == stops[each]:
                filled.append(each)
        return filled

    def _line_up(
        self,
        starts: Mapping[TopicPartition, int],
        stops: Mapping[TopicPartition, int],
        limit: Limit,
    ) -> tuple[list[PartitionLine], set[TopicPartition]]:
        """What can be read next, and the partitions that have more than that."""
        # No batch has more of one partition: what is behind it is listed by the next ones.
        bound = bound_of(limit)
        # Those that waited longest come first, however little a batch may have.
        starts = dict(sorted(starts.items(), key=lambda each: self._turns.get(each[0], 0)))
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            listed = dict(
                zip(
                    starts,
                    threads.map(lambda each: self._list(each, starts[each], bound), starts),
                    strict=True,
                )
            )
        taken = choose({each: found.segments for each, found in listed.items()}, limit)
        turn = max(self._turns.values(), default=0) + 1
        self._turns |= {each: turn for each, count in taken.items() if count}
        waiting = {
            each
            for each, found in listed.items()
            if found.more or taken[each] < len(found.segments)
        }
        ends = self._listing.read_ends(
            segment for each, found in listed.items() for segment in found.segments[: taken[each]]
        )
        lines = [
            line_up(
                PartitionFacts(
                    partition=partition,
                    start=starts[partition],
                    stop=stops[partition],
                    listed=found.segments,
                    taken=taken[partition],
                    ends=ends,
                ),
                self._section.on_gap,
                self._gaps.lost(partition),
            )
            for partition, found in listed.items()
            if taken[partition] or not found.segments
        ]
        return lines, waiting

    def _list(self, partition: TopicPartition, start: int, bound: SegmentBound) -> ListedSegments:
        if self._aligned.get(partition) == start:
            return self._listing.list_new(partition, start, bound)
        found = self._listing.list_from(partition, start, bound)
        if not found.segments or found.segments[0].base_offset >= start:
            self._aligned[partition] = start
        return found

    def _load_tables(
        self,
        chosen: Mapping[TopicPartition, Sequence[PlannedSegment]],
        progress: Progress,
    ) -> tuple[dict[str, SourceTable], dict[str, TopicPlan], list[TableFailure]]:
        """The tables of these partitions; topics whose schema is not to be had wait."""
        tables, plans, refused = {}, {}, []
        unavailable: FrazilError | None = None
        for topic in sorted({each.topic for each in chosen}):
            shape = progress.tables[topic].shape
            try:
                learnt: tuple[TopicColumn, ...] = ()
                if self._tables.learns_columns(topic):
                    last = [found[-1].key for each, found in chosen.items() if each.topic == topic]
                    learnt = learn_columns(self._bucket, last, self._tables.envelope(topic))
                tables[topic], plans[topic] = self._tables.load(topic, shape, learnt)
            except SourceUnavailableError as error:
                _log.warning("topic waits for its schema", table=topic, error=error.reason)
                unavailable = error
            except (ConfigError, SchemaError, MalformedChangeError) as error:
                refused.append(TableFailure(topic, error))
        if unavailable is not None and not tables and not refused:
            raise unavailable
        return tables, plans, refused

    # --- beginning again ---

    def plan_copy(self, tables: Collection[str]) -> Batch | None:
        """Restart topics at their oldest records, those whose first partition is held."""
        wanted = [name for name in sorted(tables) if name in self._tables.names]
        if not wanted:
            return None
        partitions = self._cluster.find(self._tables.names)
        # Another thread shares them out, between its batches.
        held = self._coordination.leases.held() or self._coordination.rebalance(partitions)
        parts, firsts = [], []
        for topic in wanted:
            of_topic = sorted(each for each in partitions if each.topic == topic)
            if not of_topic or of_topic[0] not in held:
                continue
            oldest = {each: self._listing.first_offset(each) for each in of_topic}
            firsts.append(of_topic[0])
            table, _ = self._tables.load(topic, "")
            restart = Restart(position=0, origin=f"{topic}:restart")
            parts.append(
                TablePart(table=table, start=None, goal=name_offsets(oldest), restart=restart)
            )
        if not parts:
            return None
        return Batch(
            reader=SegmentReader(bucket=self._bucket, topics={}),
            splits=(),
            parts=tuple(parts),
            end=None,
            check=partial(self._coordination.leases.require_held, tuple(firsts)),
        )

    # --- next to a batch ---

    def wait(self, seconds: float, limit: Limit) -> bool:  # noqa: ARG002 - segments are not announced
        """Until it is time to look again; at once where a batch left segments behind."""
        if not self._has_more:
            self._clock.wait(self._woken, seconds)
        self._woken.clear()
        return self._has_more

    def wake(self) -> None:
        """Let ``wait`` return."""
        self._woken.set()

    def newest(self) -> Position:
        """Where the partitions end."""
        partitions = self._cluster.find(self._tables.names)
        ends = {each: self._since.get(each, 0) for each in partitions}
        newest: list[SegmentObject] = []
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            for found in threads.map(self._listing.list_new, ends.keys(), ends.values()):
                newest += found.segments[-1:]
        footers = self._listing.read_ends(newest)
        for each in newest:
            last = footers[each.key].last_offset if each.key in footers else None
            if last is not None:
                ends[each.partition] = max(ends[each.partition], last + 1)
        return name_offsets(ends)

    def has_reached(self, position: Position) -> bool:
        """Whether the partitions that are read have come there; others are read elsewhere."""
        if self._planned is None:
            return False
        wanted = parse_offsets(position)
        return all(at >= wanted.get(each, at) for each, at in self._planned.items())

    def kept_since(self, position: Position) -> int:  # noqa: ARG002 - as the protocol says
        """Segments are kept as long as the bucket keeps them."""
        return 0

    @property
    def reached(self) -> Mapping[str, int]:
        """Where the partitions are that are read."""
        return name_offsets(self._planned or {})

    @property
    def followed(self) -> frozenset[str]:
        """The topics of these partitions."""
        return frozenset(each.topic for each in self._planned or ())

    def received(self) -> None:
        """Nothing is received before it is planned."""

    @property
    def is_paused(self) -> bool:
        """Reading never waits."""
        return False

    def acknowledge(self, position: Position) -> None:
        """Publish the offsets of the partitions that this worker holds."""
        wanted, held = parse_offsets(position), self._coordination.leases.held()
        # Until they are published: what fails here is done again with the next plan.
        self._settled -= wanted.keys()
        offsets = {
            each: at - 1
            for each, at in wanted.items()
            if each in held and at - 1 > NOTHING_PROCESSED
        }
        # Those of a lost partition are written by whoever has it.
        with suppress(LeaseLostError):
            further = self._coordination.offsets.write(offsets) if offsets else {}
            self._settled |= wanted.keys() & held
            for each, at in further.items():
                _log.warning(
                    "another program has processed more",
                    partition=str(each),
                    position=offsets[each],
                    published=at,
                )

    def close(self) -> None:
        """Forget what was planned; leases stay until the claim is released."""
        self._planned = None
        self._has_more = False

    def _publish_again(
        self, held: Sequence[TopicPartition], recorded: Mapping[TopicPartition, int]
    ) -> None:
        """Of partitions that are new here: the worker before may have ended right before it did."""
        self._settled &= set(held)
        new = {
            each: recorded[each] for each in held if each in recorded and each not in self._settled
        }
        if new:
            self.acknowledge(name_offsets(new))
