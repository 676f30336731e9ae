"""A small table of which changes are read from a spool in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from frazil.codec.pgoutput.frames import SegmentAssembly
from frazil.codec.pgoutput.messages import (
    Begin,
    Commit,
    ImageKind,
    OldImage,
    ReplicaIdentity,
    Value,
)
from frazil.sources.change_schema import change_schema
from frazil.sources.postgres.stream.reader import StreamReader
from frazil.sources.postgres.stream.segment import SegmentPart
from frazil.sources.protocol import Split, TableFailure, TableRows
from tests.support.pgoutput.frames import NULL, encode_message, text
from tests.support.postgres.changes.change_histories import (
    INT4,
    INT8,
    TEXT,
    ShapedColumn,
    reading,
    shape,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from frazil.codec.pgoutput.messages import Message
    from frazil.errors import FrazilError
    from frazil.sources.postgres.stream.segment import OpenTransaction, ShapeReading, TableReading

OID = 16_500
ID = ShapedColumn(1, "id", INT8, is_key=True)
BODY = ShapedColumn(2, "body", TEXT)
N = ShapedColumn(3, "n", INT4)
DEFAULT = shape(OID, ID, BODY, N)
FULL = shape(OID, ID, BODY, N, identity=ReplicaIdentity.FULL)
ITEM = reading("public.item", DEFAULT, FULL, key=(1,))
LSN = 0x16_B374_D848
TIME = datetime(2024, 2, 29, 12, 0, 0, 5, tzinfo=UTC)
COMMITTED = 762_523_200_000_005


@dataclass(frozen=True)
class Segments:
    """A spool in memory."""

    contents: Mapping[str, bytes] = field(default_factory=dict)

    def load(self, name: str) -> bytes:
        return self.contents[name]


def segment(messages: Iterable[Message]) -> bytes:
    made = SegmentAssembly()
    return made.add([encode_message(each) for each in messages]) + made.finish()


def transaction(*messages: Message, lsn: int = LSN) -> list[Message]:
    return [Begin(lsn, COMMITTED, 9), *messages, Commit(lsn, lsn + 48, COMMITTED)]


@dataclass
class Read:
    """What a reader handed out, by table."""

    rows: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    failures: dict[str, FrazilError] = field(default_factory=dict)
    batches: list[pa.RecordBatch] = field(default_factory=list)


def read(
    *messages: Message,
    tables: Sequence[TableReading] = (ITEM,),
    opens: OpenTransaction | None = None,
    begins_ordinals: Mapping[int, int] | None = None,
) -> Read:
    part = SegmentPart(name="one", opens=opens, begins_ordinals=begins_ordinals or {})
    return read_parts({"one": segment(messages)}, part, tables=tables)


def read_parts(
    contents: Mapping[str, bytes], *parts: SegmentPart, tables: Sequence[TableReading]
) -> Read:
    found = Read()
    schemas = {each.name: change_schema(each.columns, each.key) for each in tables}
    reader = StreamReader(Segments(contents), tuple(tables))
    for each in reader.read(Split(parts, 1)):
        if isinstance(each, TableFailure):
            assert each.table not in found.failures
            assert each.error.table == each.table
            found.failures[each.table] = each.error
            continue
        assert isinstance(each, TableRows)
        each.rows.validate(full=True)
        assert each.rows.num_rows
        assert each.rows.schema.equals(schemas[each.table], check_metadata=True)
        found.batches.append(each.rows)
        found.rows.setdefault(each.table, []).extend(each.rows.to_pylist())
    return found


def failure(*messages: Message, tables: Sequence[TableReading] = (ITEM,)) -> FrazilError:
    found = read(*messages, tables=tables)
    assert not found.rows
    return found.failures[tables[0].name]


def new(key: Value | str, body: Value | str, n: Value | str) -> tuple[Value, ...]:
    return tuple(each if isinstance(each, Value) else text(each) for each in (key, body, n))


def old_key(key: str) -> OldImage:
    return OldImage(ImageKind.OLD_KEY, new(key, NULL, NULL))


def old_row(key: Value | str, body: Value | str, n: Value | str) -> OldImage:
    return OldImage(ImageKind.OLD_ROW, new(key, body, n))


def old_key_of(found: ShapeReading, key: str) -> OldImage:
    values = (text(key) if column.is_key else NULL for column in found.relation.columns)
    return OldImage(ImageKind.OLD_KEY, tuple(values))
