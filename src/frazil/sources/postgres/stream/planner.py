"""From segments of the spool to a batch: which tables have changes, and what shapes they had.

For every relation message that the server sends, the catalog is read, which may be newer: a column
that was dropped and added again has the same name and is another one. Relations that only describe
rows which their table has already change nothing, however old they are.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from frazil.clients.defects import defect_of_table
from frazil.codec.pgoutput.bulk_decoder import decode_frames
from frazil.codec.pgoutput.frames import read_segment
from frazil.codec.pgoutput.messages import ReplicaIdentity
from frazil.errors import FrazilError, UnsupportedSchemaChangeError
from frazil.model.command import command
from frazil.model.postgres.lsn import format_lsn, parse_lsn
from frazil.model.postgres.types import plan_column, resolve_type
from frazil.sources.postgres.stream.reader import StreamReader
from frazil.sources.postgres.stream.relation_matching import match_relation
from frazil.sources.postgres.stream.segment import SegmentPart, ShapeReading, TableReading
from frazil.sources.postgres.stream.segment_transactions import segment_transactions
from frazil.sources.postgres.stream.spool import Taken
from frazil.sources.postgres.tables.description import describe_known, describe_relation
from frazil.sources.postgres.tables.identity import relation_oid
from frazil.sources.postgres.tables.mirror_key import NoKey, mirror_key
from frazil.sources.postgres.tables.shape import decode_shape
from frazil.sources.protocol import Batch, Split, TableFailure, TablePart

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from frazil.clients.postgres.replication_stream import ReplicationStream
    from frazil.codec.pgoutput.messages import Relation
    from frazil.model.schema.types import Type
    from frazil.model.source_table import SourceTable
    from frazil.sources.postgres.settings import OptionsOf
    from frazil.sources.postgres.spool_files import SpoolFiles
    from frazil.sources.postgres.stream.segment import Segment
    from frazil.sources.postgres.stream.spool import StreamSpool
    from frazil.sources.postgres.tables.catalog_view import CatalogView
    from frazil.sources.postgres.tables.description import TableDescription, TableOptions
    from frazil.sources.postgres.tables.shape import KnownShape
    from frazil.sources.protocol import Progress, TableProgress

    # From the numbers of relations, and of types that they had, to what the catalog shows now.
    LoadViews = Callable[[Collection[int], Collection[int]], Mapping[str, CatalogView]]


class _Arrival(NamedTuple):
    """A description of a table: in which segment, and the transaction that it first came in."""

    segment: int
    relation: Relation
    xid: int


@dataclass(frozen=True, slots=True)
class _Captured:
    """A table that is captured: its position, and the descriptions that its new rows need.

    ``segments`` are those with changes of it.
    """

    name: str
    oid: int
    progress: TableProgress
    after: int
    segments: tuple[int, ...]
    arrivals: tuple[_Arrival, ...]


@dataclass(frozen=True, slots=True)
class _Described:
    """A table that is captured, with what each of its arrivals says; before all, what is known."""

    captured: _Captured
    known: TableDescription
    arrivals: tuple[TableDescription, ...]

    def until(self, cut: int) -> _Described:
        """The same for the segments before a cut."""
        kept = [each for each in self.captured.arrivals if each.segment < cut]
        segments = tuple(each for each in self.captured.segments if each < cut)
        captured = replace(self.captured, segments=segments, arrivals=tuple(kept))
        return replace(self, captured=captured, arrivals=self.arrivals[: len(kept)])

    def first_change(self) -> int | None:
        """The first segment before which the table had changes and another shape."""
        shape = self.known.table.shape
        for arrival, description in zip(self.captured.arrivals, self.arrivals, strict=True):
            has_changes_before = self.captured.segments[0] < arrival.segment
            if description.table.shape != shape and has_changes_before:
                return arrival.segment
            shape = description.table.shape
        return None


class StreamPlanner:
    """Plans batches of one stream; remembers what it learnt of tables meanwhile."""

    def __init__(self, files: SpoolFiles, options: OptionsOf, load: LoadViews) -> None:
        self._files = files
        self._options = options
        self._load = load
        self._views: dict[str, CatalogView] = {}
        # By table, the shape before, the relation, and the transaction that it came in.
        self._described: dict[tuple[str, str, Relation, int], TableDescription] = {}

    def plan(self, taken: Taken, progress: Progress) -> tuple[Batch, Taken]:
        """The batch of the first of these segments, and those that are left for the next one.

        A batch ends where one of its tables changes its shape: what was sent before is then written
        as it was. Tables that cannot be read are its failures.
        """
        tables = [each for each in self._tables(taken, progress) if each.after < (taken.end or 0)]
        self._load_views(tables)
        described: list[_Described] = []
        failures: list[TableFailure] = []
        for each in tables:
            try:
                described.append(self._describe_all(each))
            except Exception as error:  # noqa: BLE001 - of one table, whatever it is
                failures.append(_failure(each.name, error))
        cut = _cut(taken.segments, described)
        batch_of, rest = _parted(taken, cut)
        kept = [each.until(cut) for each in described]
        kept = [each for each in kept if each.captured.segments]
        return self._batch(batch_of, kept, failures), rest

    def _batch(
        self, taken: Taken, tables: Sequence[_Described], failures: list[TableFailure]
    ) -> Batch:
        end = taken.end or 0
        readings: list[TableReading] = []
        parts: list[TablePart] = []
        for each in tables:
            captured = each.captured
            if captured.after >= end:
                continue
            try:
                table, shapes = self._shapes(each)
            except Exception as error:  # noqa: BLE001 - of one table, whatever it is
                failures.append(_failure(captured.name, error))
                continue
            readings.append(
                TableReading(
                    name=captured.name,
                    oid=captured.oid,
                    columns=table.columns,
                    key=table.key,
                    shapes=shapes,
                    after=captured.after,
                )
            )
            start = captured.progress.position
            parts.append(TablePart(table=table, start=start, goal=format_lsn(end)))
        return Batch(
            reader=StreamReader(self._files, tuple(readings)),
            splits=tuple(_splits(taken.segments)) if parts else (),
            parts=tuple(parts),
            end=format_lsn(end),
            failures=tuple(failures),
        )

    def _tables(self, taken: Taken, progress: Progress) -> Iterator[_Captured]:
        touched = frozenset[int]().union(*(each.oids for each in taken.segments))
        for name, table in progress.tables.items():
            oid = relation_oid(table.identity)
            if oid is None or oid not in touched:
                continue
            after = parse_lsn(str(table.position))
            segments = tuple(
                number
                for number, segment in enumerate(taken.segments)
                if oid in segment.oids and segment.last_final_lsn >= after
            )
            if segments:
                arrivals = tuple(self._arrivals(taken.segments, segments, oid, after))
                yield _Captured(name, oid, table, after, segments, arrivals)

    def _arrivals(
        self, segments: Sequence[Segment], numbers: Sequence[int], oid: int, after: int
    ) -> Iterator[_Arrival]:
        """The descriptions of this table that rows from here on need, in order."""
        newest: tuple[Relation, int] | None = None
        for number in numbers:
            segment = segments[number]
            needed = None
            if segment.first_final_lsn < after:
                needed = self._needed(segment, oid, after)
            for relation, xid in zip(segment.relations, segment.xids, strict=True):
                if relation.oid != oid or (needed is not None and relation not in needed):
                    continue
                if (relation, xid) != newest:
                    yield _Arrival(number, relation, xid)
                newest = relation, xid

    def _needed(self, segment: Segment, oid: int, after: int) -> set[Relation]:
        """Of a segment that the table has a part of: what describes the rows it has not."""
        decoded = decode_frames(
            read_segment(self._files.load(segment.name)),
            inside_transaction=segment.opens is not None,
        )
        transactions = segment_transactions(decoded, segment.opens)
        return {
            each.relation
            for each in decoded.changes
            if each.relation.oid == oid and len(transactions.since(after, each.numbers))
        }

    def _load_views(self, captured: Sequence[_Captured]) -> None:
        unknown = [each for each in captured if self._is_view_stale(each)]
        if unknown:
            types = {oid for each in unknown for oid in _types_of(each)}
            found = self._load([each.oid for each in unknown], types)
            by_oid = {view.table.oid: view for view in found.values()}
            for each in unknown:
                view = by_oid.get(each.oid)
                if view is not None:
                    self._views[each.name] = view

    def _is_view_stale(self, table: _Captured) -> bool:
        if table.name not in self._views:
            return True
        shape = table.progress.shape
        return any(
            (table.name, shape, each.relation, each.xid) not in self._described
            for each in table.arrivals
        )

    def _describe_all(self, captured: _Captured) -> _Described:
        known = self._known(captured, decode_shape(captured.progress.shape, table=captured.name))
        described: list[TableDescription] = []
        for each in captured.arrivals:
            before = described[-1] if described else known
            described.append(self._describe(captured, each.relation, each.xid, before))
        return _Described(captured, known, tuple(described))

    def _shapes(self, described: _Described) -> tuple[SourceTable, tuple[ShapeReading, ...]]:
        """The table as its newest rows need it, and how each of its shapes is read.

        Without a description there are truncations only, and the table is what it was.
        """
        captured = described.captured
        newest = _with_defaults([described.known, *described.arrivals])
        wanted = {column.number: column.type for column in newest.columns}
        view = self._view(captured)
        shapes: dict[Relation, ShapeReading] = {}
        for arrival, description in zip(captured.arrivals, described.arrivals, strict=True):
            shape = _shape_reading(arrival.relation, description, wanted, view)
            if shapes.setdefault(arrival.relation, shape).numbers != shape.numbers:
                raise _came_back(captured.name)
        return replace(newest, identity=captured.progress.identity), tuple(shapes.values())

    def _describe(
        self, captured: _Captured, relation: Relation, xid: int, before: TableDescription
    ) -> TableDescription:
        # Cached by transaction as well: an equal message may describe other columns.
        memory = (captured.name, before.table.shape, relation, xid)
        if memory not in self._described:
            self._described[memory] = self._describe_new(captured, relation, xid, before)
        return self._described[memory]

    def _describe_new(
        self, captured: _Captured, relation: Relation, xid: int, before: TableDescription
    ) -> TableDescription:
        view = self._view(captured)
        known = decode_shape(before.table.shape, table=captured.name)
        numbers = match_relation(relation, known, view, xid=xid or None)
        options = self._options(captured.name)
        is_known = numbers == known.numbers and _says_what_is_known(relation, known)
        if is_known and not _lost_key(known, view, options):
            return before
        return describe_relation(relation, numbers, view, options, known=known)

    def _known(self, captured: _Captured, known: KnownShape) -> TableDescription:
        return describe_known(known, self._view(captured), self._options(captured.name))

    def _view(self, captured: _Captured) -> CatalogView:
        view = self._views.get(captured.name)
        if view is None:
            raise UnsupportedSchemaChangeError(
                "the table is not in the catalog any more.",
                next_step=command("resync", captured.name),
            )
        return view


def _failure(table: str, error: Exception) -> TableFailure:
    if not isinstance(error, FrazilError):
        error = defect_of_table(error, table, "planning a batch")
    error.table = table
    return TableFailure(table, error)


def _came_back(table: str) -> UnsupportedSchemaChangeError:
    """Rows of both shapes are alike, so it is not known which column they have."""
    message = (
        "a column was dropped and came back under the same name and type within one transaction."
    )
    return UnsupportedSchemaChangeError(message, next_step=command("resync", table))


def _with_defaults(described: Sequence[TableDescription]) -> SourceTable:
    """The newest table; a column that came on the way there brings what it said of older rows."""
    news = {
        column.number: column
        for description in described
        for column in description.table.columns
        if column.default is not None or column.rewrote
    }
    newest = described[-1].table
    columns = tuple(
        replace(each, default=news[each.number].default, rewrote=news[each.number].rewrote)
        if each.number in news
        else each
        for each in newest.columns
    )
    return replace(newest, columns=columns)


def _types_of(captured: _Captured) -> Iterator[int]:
    """The types of its columns, as they were known and as they came."""
    # What cannot be read is reported when the table is described.
    with suppress(FrazilError):
        known = decode_shape(captured.progress.shape, table=captured.name)
        yield from (each.type_oid for each in known.columns)
    for arrival in captured.arrivals:
        yield from (each.type_oid for each in arrival.relation.columns)


def _says_what_is_known(relation: Relation, known: KnownShape) -> bool:
    """Whether nothing changed: the columns are the same, and rows are found by the same ones."""
    columns = [(each.name, each.type_oid, each.type_modifier) for each in relation.columns]
    if columns != [(each.name, each.type_oid, each.type_modifier) for each in known.columns]:
        return False
    marked = {
        number for number, each in zip(known.numbers, relation.columns, strict=True) if each.is_key
    }
    key = set(known.key)
    if relation.replica_identity is ReplicaIdentity.DEFAULT:
        return not key or marked == key
    return key <= marked


def _lost_key(known: KnownShape, view: CatalogView, options: TableOptions) -> bool:
    """Whether rows were found by a key that the table no longer has.

    A message does not say that the replica identity is the full row. The catalog may be ahead of
    it, and then the table stops a little early.
    """
    found = mirror_key(view.table, view.published, options.key)
    numbers = {each.name: each.number for each in view.table.attributes}
    key = set() if isinstance(found, NoKey) else {numbers[name] for name in found}
    return bool(known.key) and key != set(known.key)


def _shape_reading(
    relation: Relation,
    description: TableDescription,
    wanted: Mapping[int, Type],
    view: CatalogView,
) -> ShapeReading:
    """How rows of this shape are read into the columns of the newest one."""
    plans = []
    for column, sent in zip(description.table.columns, relation.columns, strict=True):
        plan = description.plans[column.number]
        type_ = wanted.get(column.number, plan.type)
        if type_ != plan.type:
            plan = plan_column(
                sent.name,
                resolve_type(sent.type_oid, sent.type_modifier, view.types),
                declared=type_,
                on_unrepresentable=plan.on_unrepresentable,
            )
        plans.append(plan)
    numbers = tuple(column.number for column in description.table.columns)
    return ShapeReading(relation=relation, numbers=numbers, plans=tuple(plans))


def _cut(segments: Sequence[Segment], tables: Sequence[_Described]) -> int:
    """How many segments a batch takes; at least those of one transaction."""
    changes = [each.first_change() for each in tables]
    cut = min((each for each in changes if each is not None), default=len(segments))
    while 0 < cut < len(segments) and segments[cut].opens is not None:
        # All segments of a large transaction are taken together.
        cut -= 1
    return cut or len(segments)


def _parted(taken: Taken, cut: int) -> tuple[Taken, Taken]:
    first, rest = taken.segments[:cut], taken.segments[cut:]
    if not rest:
        return taken, Taken((), None)
    return Taken(first, first[-1].end_lsn), Taken(rest, taken.end)


def _splits(segments: Sequence[Segment]) -> Iterator[Split]:
    for each in segments:
        part = SegmentPart(name=each.name, opens=each.opens, begins_ordinals=each.begins_ordinals)
        yield Split((part,), each.size)


@dataclass(slots=True)
class OpenStream:
    """A running stream with its spool and its planner."""

    stream: ReplicationStream
    spool: StreamSpool
    planner: StreamPlanner
    backend: int
    planned_to: int
    # Those whose changes were never left out of it, with their numbers at the source.
    tables: Mapping[str, int | None] = field(default_factory=dict)
    taken: tuple[Segment, ...] = ()
    # Taken from the spool and left for the next batch.
    rest: Taken = field(default_factory=lambda: Taken((), None))

    def release(self) -> None:
        """Let the spool remove the segments of the last batch."""
        taken, self.taken = self.taken, ()
        if taken:
            self.spool.release(taken)
