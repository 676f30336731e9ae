"""Compares a mirror, as every reader sees it, with the rows of the reference model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.merge.planning.column_mapping import decode_columns
from frazil.merge.planning.schema_mapping import DELETED_COLUMN
from frazil.model.schema.types import Primitive, parse_scalar
from frazil.model.table_facts import COLUMNS_PROPERTY
from tests.support.lake.other_readers import rows_by_duckdb, rows_by_pyiceberg
from tests.support.merge.changelog import SEQUENCE, spell_sequence
from tests.support.merge.values import encode, type_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from frazil.clients.iceberg.table import LakeTable
    from frazil.model.schema.types import Type
    from tests.support.merge.model import Replay, Row
    from tests.support.merge.values import Json

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class MirrorColumn:
    """A column of the mirror: one of the source's by its number, or one that a merge adds."""

    name: str
    type: Type
    id: int | None = None

    def expected(self, row: Row, sequence: str) -> Json:
        """The expected values of this column."""
        if self.id is not None:
            return row.values[self.id]
        if self.name == DELETED_COLUMN:
            return row.deleted
        return encode(spell_sequence(row.sequence, sequence), self.type)


@dataclass(frozen=True, slots=True)
class MirrorReader:
    """One mirror at one moment; ``fields`` are the changelog's field ids by column."""

    table: LakeTable
    replay: Replay
    fields: Mapping[int, int]

    @property
    def columns(self) -> list[MirrorColumn]:
        """All that must be there; a column that the source dropped may have got another name."""
        history = self.replay.history
        found = [
            MirrorColumn(name, type_of(each.type), each.id)
            for each, name in zip(self.replay.columns.values(), self._names(), strict=True)
        ]
        if self.replay.is_per_key:
            found.append(MirrorColumn(SEQUENCE, parse_scalar(history.sequence)))
        if history.deletes == "soft":
            found.append(MirrorColumn(DELETED_COLUMN, Primitive.BOOLEAN))
        return found

    def read_by_all(self) -> Iterator[tuple[str, pa.Table]]:
        """The rows as each reader sees them."""
        location = self.table.load_metadata_location()
        yield "Spark", self.table.read().toArrow()
        yield "PyIceberg", rows_by_pyiceberg(location)
        yield "DuckDB", rows_by_duckdb(location)

    def _names(self) -> Iterator[str]:
        text = self.table.load_state().properties[COLUMNS_PROPERTY]
        mapped = decode_columns(text, table=str(self.table.name)).fields
        mirror_ids = {each.changelog: each.mirror for each in mapped}
        names = {each.id: each.name for each in self.table.load_schema().fields}
        live = {each.id for each in self.replay.live}
        for each in self.replay.columns.values():
            name = names[mirror_ids[self.fields[each.id]]]
            assert name == each.name or each.id not in live
            yield name


def compare(replay: Replay, columns: Sequence[MirrorColumn], found: pa.Table) -> str:
    """How the rows differ from what they must be; nothing if they do not."""
    wanted = {each.name for each in columns}
    if wanted != set(found.column_names):
        return f"columns {sorted(found.column_names)}, expected {sorted(wanted)}"
    live = [each.name for each in replay.live]
    order = [name for name in found.column_names if name in live]
    if order != live:
        return f"columns in the order {order}, expected {live}"
    sequence = replay.history.sequence
    key = {each.id: each for each in columns if each.id in replay.history.key}
    # Keys are compared as keys: which of two zeros one has does not matter.
    others = [each for each in columns if each.id not in key]
    expected = {
        each: tuple(column.expected(row, sequence) for column in others)
        for each, row in replay.rows.items()
    }
    rows: dict[tuple[Json, ...], list[tuple[Json, ...]]] = {}
    for row in found.to_pylist():
        of_key = {number: encode(row[each.name], each.type) for number, each in key.items()}
        values = tuple(encode(row[each.name], each.type) for each in others)
        rows.setdefault(replay.key_of(of_key), []).append(values)
    return _difference(expected, rows, [each.name for each in others])


def _difference(
    expected: Mapping[tuple[Json, ...], tuple[Json, ...]],
    found: Mapping[tuple[Json, ...], list[tuple[Json, ...]]],
    names: Sequence[str],
) -> str:
    missing = [key for key in expected if key not in found]
    surplus = [key for key in found if key not in expected]
    twice = [key for key, rows in found.items() if len(rows) > 1]
    differences = [
        f"{len(keys)} keys {what}: {keys[:_SHOWN]}"
        for what, keys in (("missing", missing), ("too many", surplus), ("there twice", twice))
        if keys
    ]
    for key, rows in found.items():
        if key in expected and rows[0] != expected[key] and len(differences) < _SHOWN:
            pairs = zip(names, rows[0], expected[key], strict=True)
            wrong = [
                f"{name} is {one!r}, not {other!r}" for name, one, other in pairs if one != other
            ]
            differences.append(f"key {key}: {'; '.join(wrong)}")
    return "; ".join(differences)
