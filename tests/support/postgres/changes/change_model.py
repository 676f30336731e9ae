"""What changes become, said slowly: one message after another and one value at a time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.codec.pgoutput.messages import (
    Begin,
    Commit,
    Delete,
    ImageKind,
    Insert,
    Message,
    OldImage,
    Relation,
    Truncate,
    Update,
    Value,
    ValueKind,
    moment,
)
from frazil.codec.pgtext.convert import convert
from frazil.errors import FrazilError, MissingImageError, UnsupportedSchemaChangeError
from frazil.model.postgres.lsn import format_lsn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from frazil.sources.postgres.stream.segment import OpenTransaction, ShapeReading, TableReading

Row = dict[str, object]
# By attribute number; what is not there was not sent.
Known = dict[int, str | None]


@dataclass
class Outcome:
    """The rows of a table, or what is wrong with them, each with the position of its row."""

    rows: list[Row] = field(default_factory=list)
    failures: list[tuple[int, type[FrazilError]]] = field(default_factory=list)


class SlowReading:
    """Reads decoded messages and keeps an outcome for each table."""

    def __init__(
        self,
        tables: Iterable[TableReading],
        *,
        opens: OpenTransaction | None = None,
        begins_ordinals: Mapping[int, int] | None = None,
    ) -> None:
        self._tables = {each.oid: each for each in tables}
        self.outcomes = {each.name: Outcome() for each in self._tables.values()}
        self._relations: dict[int, Relation] = {}
        self._begin = None if opens is None else Begin(opens.final_lsn, opens.committed_at, 0)
        self.counts = dict(begins_ordinals or {})

    def read(self, messages: Iterable[Message]) -> dict[str, Outcome]:
        for each in messages:
            self._read(each)
        return {name: each for name, each in self.outcomes.items() if each.rows or each.failures}

    def _read(self, message: Message) -> None:
        match message:
            case Begin():
                self._begin, self.counts = message, {}
            case Commit():
                self._begin = None
            case Relation():
                self._relations[message.oid] = replace(message, xid=None)
            case Truncate():
                for oid in filter(self._wants, message.relation_oids):
                    self._emit(self._tables[oid], "TRUNCATE", {})
            case Insert() | Update() | Delete():
                if self._wants(message.relation_oid):
                    self._change(self._tables[message.relation_oid], message)
            case _:
                pass

    def _wants(self, oid: int) -> bool:
        assert self._begin is not None
        return oid in self._tables and self._begin.final_lsn >= self._tables[oid].after

    def _change(self, table: TableReading, message: Insert | Update | Delete) -> None:
        assert self._begin is not None
        try:
            self._become(table, message)
        except FrazilError as error:
            failure = (self._begin.final_lsn, type(error))
            self.outcomes[table.name].failures.append(failure)

    def _become(self, table: TableReading, message: Insert | Update | Delete) -> None:
        relation = self._relations[table.oid]
        shape = next((each for each in table.shapes if each.relation == relation), None)
        if shape is None or not set(table.key) <= set(shape.numbers):
            raise UnsupportedSchemaChangeError("no such shape")
        old = None if isinstance(message, Insert) else message.old
        self._check_identity(table, shape, message, old)
        before = {} if old is None else old_values(shape, old)
        if old is not None and not set(table.key) <= before.keys():
            raise MissingImageError("no old key")
        if isinstance(message, Delete):
            self._emit(table, "DELETE", before, shape)
            return
        sent = new_values(shape, message.new)
        now = {number: before[number] for number in shape.numbers if number in before} | sent
        now = {n: v for n, v in now.items() if n in sent or n in unchanged(shape, message.new)}
        if not set(table.key) <= now.keys():
            raise MissingImageError("no key")
        self._came(table, shape, message, before if old is not None else None, now)

    def _came(
        self,
        table: TableReading,
        shape: ShapeReading,
        message: Insert | Update,
        before: Known | None,
        now: Known,
    ) -> None:
        if isinstance(message, Insert):
            self._emit(table, "INSERT", now, shape)
        elif before is None or all(before[number] == now[number] for number in table.key):
            self._emit(table, "UPDATE", now, shape)
        else:
            self._emit(table, "DELETE", before, shape)
            self._emit(table, "INSERT", now, shape, previous=before)

    @staticmethod
    def _check_identity(
        table: TableReading,
        shape: ShapeReading,
        message: Insert | Update | Delete,
        old: OldImage | None,
    ) -> None:
        columns = zip(shape.relation.columns, shape.numbers, strict=True)
        identity = {number for column, number in columns if column.is_key}
        if isinstance(message, Insert) or set(table.key) <= identity:
            return
        if old is None or old.kind is ImageKind.OLD_KEY:
            raise UnsupportedSchemaChangeError("the key is not in the identity")

    def _emit(
        self,
        table: TableReading,
        operation: str,
        known: Known,
        shape: ShapeReading | None = None,
        previous: Known | None = None,
    ) -> None:
        assert self._begin is not None
        plans = {} if shape is None else dict(zip(shape.numbers, shape.plans, strict=True))

        def value(number: int, values: Known) -> object:
            text = pa.array([values.get(number)], pa.string())
            return None if number not in plans else convert(text, plans[number]).values[0].as_py()

        numbers = [each.number for each in table.columns]
        row: Row = {str(number): value(number, known) for number in numbers}
        unknown = [number for number in numbers if number in plans and number not in known]
        came = operation in {"INSERT", "UPDATE"}
        row |= {
            "operation": operation,
            "position": self._begin.final_lsn,
            "ordinal": self.counts.get(table.oid, 0),
            "committed_at": moment(self._begin.committed_at),
            "origin": format_lsn(self._begin.final_lsn),
            "unchanged": unknown if came and unknown else None,
        }
        if table.key:
            row["previous_key"] = (
                None
                if previous is None
                else {str(number): value(number, previous) for number in table.key}
            )
        self.outcomes[table.name].rows.append(row)
        self.counts[table.oid] = self.counts.get(table.oid, 0) + 1


def new_values(shape: ShapeReading, values: tuple[Value, ...]) -> Known:
    """What a new row has."""
    found = zip(shape.numbers, values, strict=True)
    return {n: _text(each) for n, each in found if each.kind is not ValueKind.UNCHANGED}


def old_values(shape: ShapeReading, image: OldImage) -> Known:
    """What an old image has: of a key, only the columns of the replica identity."""
    known = new_values(shape, image.values)
    if image.kind is ImageKind.OLD_ROW:
        return known
    columns = zip(shape.relation.columns, shape.numbers, strict=True)
    identity = {number for column, number in columns if column.is_key}
    return {number: value for number, value in known.items() if number in identity}


def unchanged(shape: ShapeReading, values: tuple[Value, ...]) -> set[int]:
    """The columns that were not sent."""
    found = zip(shape.numbers, values, strict=True)
    return {number for number, each in found if each.kind is ValueKind.UNCHANGED}


def _text(value: Value) -> str | None:
    return value.data.decode() if value.kind is ValueKind.TEXT else None
