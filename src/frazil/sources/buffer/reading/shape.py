"""The columns of a table as its events show them; pure.

A type is declared in the configuration, or known from the writer's history of schemas, or follows
from what most of the values seen are: booleans, integers of 64 bits, and text for everything else.
Numbers that are no such integers are kept as text, to the last digit; a decimal is to be declared,
because no column becomes one later. A type that is there stays, or is widened where Iceberg widens
it: an event with a value that does not fit is rejected alone, also in the batch that decided.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.policy import OnUnrepresentable
from frazil.model.schema.change import widens
from frazil.model.schema.reserved_names import why_reserved
from frazil.model.schema.table_layout import OwnColumn, TableLayout
from frazil.model.schema.types import WIDEST_DECIMAL, Decimal, Primitive, parse_scalar
from frazil.model.source_table import SourceColumn, SourceTable, TableBegin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from frazil.config import TableSettings
    from frazil.model.schema.types import Scalar

VERSION: Final = 1
LAYOUT: Final = TableLayout(partition_by=(("{prefix}date", "day({prefix}timestamp)"),))
# As many as a table of Postgres can have: documents that are maps, not rows, would give a column to
# every key. A statement can select 1,664.
MOST_COLUMNS: Final = 1600
_LONGEST_NAME: Final = 255

_NUMERIC: Final = re.compile(r"(?:numeric|decimal)\s*\(\s*(\d{1,4})\s*(?:,\s*(\d{1,4})\s*)?\)")
_LENGTH: Final = re.compile(r"\s*\(\s*\d+\s*\)")
_TYPES: Final[Mapping[str, Scalar]] = {
    **dict.fromkeys(("boolean", "bool"), Primitive.BOOLEAN),
    **dict.fromkeys(("smallint", "int2", "integer", "int", "int4"), Primitive.INT),
    **dict.fromkeys(("smallserial", "serial2", "serial", "serial4"), Primitive.INT),
    **dict.fromkeys(("bigint", "int8", "bigserial", "serial8", "oid"), Primitive.LONG),
    **dict.fromkeys(("real", "float4"), Primitive.FLOAT),
    **dict.fromkeys(("double precision", "float8", "double"), Primitive.DOUBLE),
    "date": Primitive.DATE,
    **dict.fromkeys(("timestamp", "timestamp without time zone"), Primitive.TIMESTAMP),
    **dict.fromkeys(("timestamptz", "timestamp with time zone"), Primitive.TIMESTAMPTZ),
    "uuid": Primitive.UUID,
    "bytea": Primitive.BINARY,
}
# Types with values at the source that Iceberg lacks.
_MAY_NOT_FIT: Final = (Primitive.DATE, Primitive.TIMESTAMP, Primitive.TIMESTAMPTZ)


@dataclass(frozen=True, slots=True)
class EventColumn:
    """A column; ``nulls_misfits``: a value that does not fit becomes null, as its owner wants."""

    number: int
    name: str
    type: Scalar
    nulls_misfits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """All columns in the order of their birth, and the numbers of those that are the key."""

    columns: tuple[EventColumn, ...] = ()
    key: tuple[int, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(each.name for each in self.columns)


@dataclass(frozen=True, slots=True)
class SeenColumn:
    """How many values of which kind a column has that is not known yet; nulls say nothing."""

    name: str
    values: int
    booleans: int = 0
    numbers: int = 0
    integers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryColumns:
    """What the writer's history says of a table."""

    types: Mapping[str, Scalar] = field(default_factory=dict)
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GrownShape:
    """A shape for the next rows; ``unusable`` are names that no column can have."""

    shape: TableShape
    unusable: tuple[str, ...] = ()


def source_columns(shape: TableShape) -> tuple[SourceColumn, ...]:
    """The columns as every source describes them."""
    return tuple(
        SourceColumn(number=each.number, name=each.name, type=each.type) for each in shape.columns
    )


def described_table(name: str, source: str, shape: TableShape) -> SourceTable:
    """The table of a source as the rest of the pipeline knows it."""
    return SourceTable(
        name=name,
        identity=source,
        shape=encode_shape(shape),
        columns=source_columns(shape),
        key=shape.key,
        highest_number=max((each.number for each in shape.columns), default=0),
        layout=LAYOUT,
        begins=TableBegin.STREAM,
    )


def encode_shape(shape: TableShape) -> str:
    """One line of JSON, which the changelog keeps."""
    columns = [[each.number, each.name, str(each.type)] for each in shape.columns]
    document = {"version": VERSION, "columns": columns, "key": list(shape.key)}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def decode_shape(text: str, *, table: str) -> TableShape:
    """The shape again; no text is that of a table without rows."""
    if not text:
        return TableShape()
    try:
        return _from_json(json.loads(text))
    except (KeyError, TypeError, ValueError) as error:
        message = "the columns that its changelog was written with are not known any more."
        raise UnsupportedSchemaChangeError(message, table=table) from error


def _from_json(document: Mapping[str, Any]) -> TableShape:
    if document["version"] != VERSION:
        raise ValueError(document["version"])
    columns = tuple(
        EventColumn(int(number), str(name), parse_scalar(type_))
        for number, name, type_ in document["columns"]
    )
    return TableShape(columns=columns, key=tuple(map(int, document["key"])))


def parse_history(text: str) -> HistoryColumns:
    """The columns of a schema history: a list of objects with name and type.

    What is not of this form is not known: the values seen decide then.
    """
    try:
        document = json.loads(text)
    except ValueError:
        return HistoryColumns()
    named = [
        each
        for each in (document if isinstance(document, list) else ())
        if isinstance(each, dict)
        and isinstance(each.get("name"), str)
        and isinstance(each.get("type"), str)
    ]
    return HistoryColumns(
        types={each["name"]: postgres_type(each["type"]) for each in named},
        key=tuple(
            each["name"]
            for each in named
            if each.get("primary_key") is True or each.get("is_primary_key") is True
        ),
    )


def postgres_type(name: str) -> Scalar:
    """What a type of Postgres becomes, by its name; text if it is not known."""
    plain = " ".join(name.lower().split()).removeprefix("pg_catalog.")
    numeric = _NUMERIC.fullmatch(plain)
    if numeric is not None:
        precision, scale = int(numeric[1]), int(numeric[2] or 0)
        widest = max(precision, scale)
        return Decimal(widest, scale) if 1 <= widest <= WIDEST_DECIMAL else Primitive.STRING
    return _TYPES.get(_LENGTH.sub("", plain), Primitive.STRING)


def grow_shape(
    known: TableShape,
    history: HistoryColumns,
    seen: Sequence[SeenColumn],
    settings: TableSettings,
    key_seen: Sequence[str] = (),
) -> GrownShape:
    """The shape with the columns that are new, and wider where history or settings say so.

    The key is decided with the first columns, and stays: a mirror has one key.
    """
    naming = _Naming(settings, known.names)
    columns = [_following(each, history, settings) for each in known.columns]
    number = max((each.number for each in columns), default=0)
    found = {name: type_ for name, type_ in history.types.items() if name not in known.names}
    for each in seen:
        if each.name not in known.names:
            found.setdefault(each.name, _seen_type(each))
    for name, type_ in found.items():
        if naming.takes(name):
            number += 1
            wanted = _wanted(name, type_, settings)
            columns.append(_with_policy(EventColumn(number, name, wanted), settings))
    shape = TableShape(columns=tuple(columns), key=known.key)
    if not known.columns:
        key = settings.key or history.key or tuple(key_seen)
        shape = replace(shape, key=_numbers(key, shape))
    return GrownShape(shape, tuple(naming.refused))


class _Naming:
    """Which names columns can have: Spark does not tell cases apart, and some are taken."""

    def __init__(self, settings: TableSettings, names: Iterable[str]) -> None:
        self._taken = {f"{settings.column_prefix}{each}".lower() for each in OwnColumn}
        self._taken |= {each.lower() for each in names}
        self._left = MOST_COLUMNS + len(OwnColumn) - len(self._taken)
        self.refused: list[str] = []

    def takes(self, name: str) -> bool:
        """Whether a new column may have this name; it has it then."""
        is_usable = 0 < len(name) <= _LONGEST_NAME and why_reserved(name) is None
        if not is_usable or name.lower() in self._taken or self._left <= 0:
            self.refused.append(name)
            return False
        self._taken.add(name.lower())
        self._left -= 1
        return True


def _seen_type(column: SeenColumn) -> Scalar:
    """What most values are: the few that are something else are no rows, and can be repaired.

    Among numbers none is an exception: with one that is no integer, all digits of all are kept.
    """
    if column.booleans * 2 > column.values:
        return Primitive.BOOLEAN
    are_integers = column.numbers == column.integers
    return (
        Primitive.LONG if are_integers and column.numbers * 2 > column.values else Primitive.STRING
    )


def _following(
    column: EventColumn, history: HistoryColumns, settings: TableSettings
) -> EventColumn:
    wanted = _wanted(column.name, history.types.get(column.name, column.type), settings)
    if widens(column.type, wanted):
        column = replace(column, type=wanted)
    return _with_policy(column, settings)


def _wanted(name: str, type_: Scalar, settings: TableSettings) -> Scalar:
    declared = settings.columns[name].type if name in settings.columns else None
    if declared is not None:
        return parse_scalar(declared)
    may_not_fit = isinstance(type_, Decimal) or type_ in _MAY_NOT_FIT
    is_text = may_not_fit and _policy(name, settings) is OnUnrepresentable.STRING
    return Primitive.STRING if is_text else type_


def _policy(name: str, settings: TableSettings) -> OnUnrepresentable:
    own = settings.columns[name].on_unrepresentable if name in settings.columns else None
    return own or settings.mirror.on_unrepresentable


def _with_policy(column: EventColumn, settings: TableSettings) -> EventColumn:
    nulls = _policy(column.name, settings) is OnUnrepresentable.NULL
    return replace(column, nulls_misfits=nulls)


def _numbers(key: Sequence[str], shape: TableShape) -> tuple[int, ...]:
    """The numbers of the key columns; none if one of them is not there."""
    by_name = {each.name: each.number for each in shape.columns}
    return tuple(by_name[each] for each in key) if set(key) <= by_name.keys() else ()
