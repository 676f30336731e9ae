"""The changelog of a history: snapshots written in the driver, without a Spark job."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from frazil.changelog.layout import CdcColumns, changelog_schema, number_fields
from frazil.changelog.table import ChangelogTable
from frazil.clients.iceberg.write.arrow_schema import arrow_schema, parquet_name
from frazil.clients.iceberg.write.task_writer import TaskWriter
from frazil.hooks import SystemClock, SystemRandomness
from frazil.model.marker import Marker
from frazil.model.schema.types import Field, Nested, Primitive, Schema, Struct, parse_scalar
from frazil.model.table_facts import INCOMPLETE_KEY
from tests.support.merge.model import altered
from tests.support.merge.values import decode, type_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.commit.strict_commit import Receipt
    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.write.data_file import WrittenFile
    from frazil.model.schema.types import Default
    from frazil.model.table_name import TableName
    from tests.support.merge.model import Alter, Append, Change, Column, History

_OURS = CdcColumns()
SEQUENCE = _OURS.sequence_number
_ORDINALS = 1_000


def spell_sequence(number: int, type_: str) -> Any:
    """The sequence of a change as a value of this type."""
    if type_ == "string":
        return f"0000/{number // _ORDINALS:016x}/{number % _ORDINALS:016x}"
    if type_ in {"timestamp", "timestamptz"}:
        zone = UTC if type_ == "timestamptz" else None
        return datetime(2026, 1, 1, tzinfo=zone) + timedelta(microseconds=number)
    return Decimal(number) if type_.startswith("decimal") else number


@dataclass(slots=True)
class ModelChangelog:
    """A changelog, with everything that was ever written to it; ``fields`` are ids by column."""

    table: ChangelogTable
    history: History
    columns: tuple[Column, ...]
    fields: dict[int, int]
    changes: list[Change] = field(default_factory=list)
    snapshots: int = 0

    @classmethod
    def create(cls, lake: Lake, name: TableName, history: History) -> ModelChangelog:
        """An empty one."""
        source = [Field(0, each.name, type_of(each.type)) for each in history.columns]
        by_id = {each.id: each for each in history.columns}
        schema = changelog_schema(source, [by_id[each].name for each in history.key])
        typed = tuple(
            replace(each, type=parse_scalar(history.sequence)) if each.name == SEQUENCE else each
            for each in schema.fields
        )
        table = ChangelogTable.ensure(lake, name, schema=replace(schema, fields=typed))
        ids = [each.id for each in history.columns]
        numbers = [each.id for each in table.table.load_schema().fields]
        return cls(table, history, history.columns, dict(zip(ids, numbers, strict=False)))

    def column(self, number: int) -> Column:
        """A column as it is now."""
        return next(each for each in self.columns if each.id == number)

    def head(self) -> int:
        """The newest snapshot."""
        head = self.table.table.load_state().head
        assert head is not None
        return head.id

    def append(self, step: Append) -> int:
        """A snapshot; a schema that changes does so with its rows."""
        start = None if self.snapshots == 0 else str(self.snapshots)
        self.snapshots += 1
        at = str(self.snapshots)
        goal = Marker(pipeline="model", source="source", position=at, batch=f"batch {at}")
        receipt: Receipt
        if step.alter:
            wanted = self._evolved(step.alter)
            files = self._write(step, wanted)
            receipt = self.table.evolve(wanted, start=start, goal=goal, files=files)
        else:
            files = self._write(step, self.table.table.load_schema())
            summary = {INCOMPLETE_KEY: "true"} if step.incomplete else {}
            receipt = self.table.append(files, start=start, goal=goal, summary=summary)
        self.changes += step.changes
        assert receipt.marker.snapshot is not None
        return receipt.marker.snapshot.id

    def remove_merged(self, position: int) -> int:
        """Take away the files that were there when the mirror was merged last."""
        table = self.table.table
        merged = {each.location for each in table.load_live_files(position)}
        table._table.refresh()
        # By the file itself: by its name, the gateway would find the method that unlinks it.
        removal = table._table.newDelete()
        scanned = table._table.newScan().planFiles().iterator()
        while scanned.hasNext():
            file = scanned.next().file()
            if str(file.location()) in merged:
                removal.deleteFile(file)
        removal.commit()
        return self.head()

    def expire_before(self, session: SparkSession, position: int) -> None:
        """Expire what is older than the snapshot that was merged last."""
        table = self.table.table
        history = [each.id for each in table.load_ancestry()]
        older = history[history.index(position) + 1 :] if position in history else []
        if not older:
            return
        name = f"{table.name.namespace[0]}.{table.name.table}"
        session.sql(f"refresh table {table.name.quoted}")
        ids = ", ".join(map(str, older))
        session.sql(
            f"call {table.name.catalog}.system.expire_snapshots(table => '{name}', "
            f"snapshot_ids => array({ids}))"
        )

    def _evolved(self, alter: Sequence[Alter]) -> Schema:
        before = self.table.table.load_schema()
        last = self.table.table.load_state().last_column_id
        self.columns = altered(self.columns, alter)
        by_id = {each.id: each for each in before.fields}
        made = []
        for each in self.columns:
            if each.id in self.fields:
                existing = by_id[self.fields[each.id]]
                is_nested = isinstance(existing.type, Nested)
                type_ = existing.type if is_nested else type_of(each.type)
                made.append(replace(existing, name=each.name, type=type_))
                continue
            (new,) = number_fields([_field(each)], first_id=last + 1)
            last = max(column.field.id for column in Schema(0, (new,)).columns())
            self.fields[each.id] = new.id
            made.append(new)
        own = [self._own(each) for each in before.fields if each.name in _OURS.names]
        return replace(before, fields=(*made, *own))

    def _own(self, field_: Field) -> Field:
        """Our columns stay as they are, but the old key takes what the new one does."""
        if field_.name != _OURS.previous_key or not isinstance(field_.type, Struct):
            return field_
        key = [type_of(self.column(each).type) for each in self.history.key]
        members = zip(field_.type.fields, key, strict=True)
        return replace(
            field_, type=Struct(tuple(replace(each, type=type_) for each, type_ in members))
        )

    def _write(self, step: Append, schema: Schema) -> list[WrittenFile]:
        target = self.table.table.load_write_target(schema)
        written: list[WrittenFile] = []
        for part in range(step.files):
            rows = [self._row(each, schema) for each in step.changes[part :: step.files]]
            if not rows:
                continue
            writer = TaskWriter(target, clock=SystemClock(), randomness=SystemRandomness())
            types = arrow_schema(schema).types
            arrays = [
                pa.array([row.get(each.name) for row in rows], type_)
                for each, type_ in zip(schema.fields, types, strict=True)
            ]
            names = [each.name for each in schema.fields]
            writer.write(pa.RecordBatch.from_arrays(arrays, names=names))
            written += writer.close()
        return written

    def _row(self, change: Change, schema: Schema) -> dict[str, Any]:
        given = dict(change.values)
        row = {
            each.name: decode(given[each.id], type_of(each.type))
            for each in self.columns
            if each.id in given
        }
        row[_OURS.operation] = change.operation
        row[SEQUENCE] = spell_sequence(change.sequence, self.history.sequence)
        if change.unchanged:
            row[_OURS.unchanged] = [self.fields[each] for each in change.unchanged]
        if change.previous is not None:
            previous = next(each for each in schema.fields if each.name == _OURS.previous_key)
            assert isinstance(previous.type, Struct)
            row[_OURS.previous_key] = {
                parquet_name(member.name): decode(value, member.type)
                for member, value in zip(previous.type.fields, change.previous, strict=True)
            }
        return row


def _field(column: Column) -> Field:
    """A new column; defaults are written as Iceberg's JSON has them."""
    default: Default | None = None
    if isinstance(column.default, bool | int | str):
        is_floating = type_of(column.type) in {Primitive.FLOAT, Primitive.DOUBLE}
        default = float(column.default) if is_floating else column.default
    return Field(
        0, column.name, type_of(column.type), initial_default=default, write_default=default
    )
