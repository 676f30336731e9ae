"""Tables captured from a stream without a server.

Messages go through the spool into segments, segments through the planner into batches, and what a
batch hands to tasks is read. The catalog is what it would show by the time it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from frazil.codec.pgoutput.messages import (
    Begin,
    Commit,
    Insert,
    Relation,
    RelationColumn,
    ReplicaIdentity,
)
from frazil.model.postgres.lsn import format_lsn
from frazil.model.postgres.names import QualifiedName
from frazil.sources.postgres.spool_files import SpoolFiles
from frazil.sources.postgres.stream.planner import StreamPlanner
from frazil.sources.postgres.stream.spool import Taken
from frazil.sources.postgres.stream.transaction_spooling import TransactionSpooling
from frazil.sources.postgres.tables.description import TableOptions, describe_table
from frazil.sources.protocol import Progress, TableProgress, TableRows
from tests.support.pgoutput.frames import text
from tests.support.postgres.spooled import MOMENT, framed
from tests.support.postgres.views import attribute, view

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from frazil.codec.pgoutput.messages import Message
    from frazil.model.postgres.facts import Attribute
    from frazil.model.source_table import SourceTable
    from frazil.sources.postgres.settings import OptionsOf
    from frazil.sources.postgres.stream.segment import Segment
    from frazil.sources.postgres.tables.catalog_view import CatalogView
    from frazil.sources.protocol import Batch, TablePart

ORDERS, ITEMS = "shop.orders", "shop.items"
BIGINT, TIMESTAMP = 20, 1114
# Of the transactions that made the tables, and that changed them since.
MADE, CHANGED = 700, 710
MORE = attribute(4, "more")


def items(*attributes: Attribute, **changed: Any) -> CatalogView:
    """A second table, with the columns of the first."""
    found = view(*attributes, **changed)
    name = QualifiedName("shop", "items")
    table, published = replace(found.table, oid=2, name=name), replace(found.published, oid=2)
    return replace(found, table=table, published=replace(published, name=name))


def relation(
    found: CatalogView,
    *,
    marked: tuple[str, ...] = ("id",),
    identity: ReplicaIdentity = ReplicaIdentity.DEFAULT,
) -> Relation:
    """What the server says of a table that looks like this."""
    columns = tuple(
        RelationColumn(each.name, each.type_oid, each.type_modifier, is_key=each.name in marked)
        for each in found.sent
    )
    name = found.table.name
    return Relation(found.table.oid, name.schema, name.name, identity, columns)


def transaction(at: int, *inside: Message, xid: int = CHANGED) -> list[Message]:
    return [Begin(at, MOMENT + at, xid), *inside, Commit(at, at + 8, MOMENT + at)]


def row(*values: object, oid: int = 1) -> Insert:
    return Insert(oid, tuple(text(str(each)) for each in values))


def item(*values: object) -> Insert:
    return row(*values, oid=2)


def no_options(table: str) -> TableOptions:
    del table
    return TableOptions()


@dataclass
class Capture:
    """Tables that are captured, from a stream that is received and planned."""

    folder: Path
    catalog: dict[str, CatalogView] = field(default_factory=lambda: {ORDERS: view()})
    options: OptionsOf = no_options
    looks: list[set[int]] = field(default_factory=list)
    known: dict[str, TableProgress] = field(default_factory=dict)

    def __post_init__(self) -> None:
        files = SpoolFiles(str(self.folder))
        self.planner = StreamPlanner(files, self.options, self._look)
        self._received = TransactionSpooling(
            files, prefix="s", segment_bytes=1, large_bytes=64, write_bytes=1
        )
        self._whole = TransactionSpooling(files, prefix="w")
        for name, found in self.catalog.items():
            self.captured(name, 0x10, describe_table(found, TableOptions()).table)

    def captured(self, name: str, at: int, table: SourceTable) -> None:
        self.known[name] = TableProgress(format_lsn(at), table.identity, table.shape)

    def segment(self, *messages: Message) -> tuple[Segment, ...]:
        """A segment of these transactions; more where a table is described again."""
        self._whole.take_frames(framed(messages))
        self._whole.finish_segment()
        return tuple(self._whole.take_finished())

    def large(self, *messages: Message) -> tuple[Segment, ...]:
        """A segment for every message and more, of a transaction that is large."""
        for each in framed(messages):
            self._received.take_frames([each])
        return tuple(self._received.take_finished())

    def plan(self, segments: tuple[Segment, ...], end: int | None = None) -> tuple[Batch, Taken]:
        found = segments[-1].end_lsn if end is None else end
        progress = Progress(acknowledged=format_lsn(0x10), tables=self.known)
        return self.planner.plan(Taken(segments, found), progress)

    def all(self, segments: tuple[Segment, ...]) -> Batch:
        """The batch of all these."""
        batch, rest = self.plan(segments)
        assert rest == Taken((), None)
        assert len(batch.splits) == len(segments)
        return batch

    def commit(self, batch: Batch) -> None:
        """What the ingester records of a batch."""
        for part in batch.parts:
            self.known[part.table.name] = TableProgress(
                part.goal, part.table.identity, part.table.shape
            )

    def _look(self, oids: Collection[int], types: Collection[int]) -> Mapping[str, CatalogView]:
        self.looks.append(set(types))
        return {name: found for name, found in self.catalog.items() if found.table.oid in oids}


def rows(batch: Batch, table: str = ORDERS) -> list[tuple[object, ...]]:
    """The position and the values of each row that a batch brings to a table, in order."""
    (part,) = [each for each in batch.parts if each.table.name == table]
    names = [str(each.number) for each in part.table.columns]
    found: list[tuple[object, ...]] = []
    for split in batch.splits:
        for each in batch.reader.read(split):
            assert isinstance(each, TableRows), each
            if each.table == table:
                found += [
                    (one["position"], *(one[name] for name in names))
                    for one in each.rows.to_pylist()
                ]
    return found


def part_of(batch: Batch, table: str = ORDERS) -> TablePart:
    assert batch.failures == ()
    (part,) = [each for each in batch.parts if each.table.name == table]
    return part
