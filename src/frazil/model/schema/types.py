"""Iceberg's types, fields and schemas as frozen values that travel to every task."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from frazil.errors import UnsupportedSchemaChangeError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Iceberg's decimals end here, because Parquet's readers do.
WIDEST_DECIMAL = 38

_DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)")
_FIXED = re.compile(r"fixed\[\s*(\d{1,10})\s*\]")


class Primitive(StrEnum):
    """The types without a parameter, under Iceberg's names."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    TIMESTAMP_NS = "timestamp_ns"
    TIMESTAMPTZ_NS = "timestamptz_ns"
    STRING = "string"
    UUID = "uuid"
    BINARY = "binary"


@dataclass(frozen=True, slots=True)
class Fixed:
    """Exactly so many bytes."""

    length: int

    def __str__(self) -> str:
        return f"fixed[{self.length}]"


@dataclass(frozen=True, slots=True)
class Decimal:
    """So many digits, of which ``scale`` are behind the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        # With the space that Iceberg itself prints.
        return f"decimal({self.precision}, {self.scale})"


# In Iceberg's JSON form: a date is text, a decimal is text, an int is a number.
Default = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Field:
    """A column, a member of a struct, or the element, key or value of a list or map.

    Defaults are kept in Iceberg's JSON form; ``None`` means that there is none.
    """

    id: int
    name: str
    type: Type
    required: bool = False
    doc: str | None = None
    initial_default: Default | None = None
    write_default: Default | None = None


@dataclass(frozen=True, slots=True)
class Struct:
    """Named members in an order."""

    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return f"struct<{', '.join(f'{each.name}: {each.type}' for each in self.fields)}>"


@dataclass(frozen=True, slots=True)
class List:
    """Any number of elements; ``element`` is called ``element``."""

    element: Field

    def __str__(self) -> str:
        return f"list<{self.element.type}>"


@dataclass(frozen=True, slots=True)
class Map:
    """Pairs; ``key`` is required and called ``key``, ``value`` is called ``value``."""

    key: Field
    value: Field

    def __str__(self) -> str:
        return f"map<{self.key.type}, {self.value.type}>"


Scalar = Primitive | Fixed | Decimal
Nested = Struct | List | Map
Type = Scalar | Nested


def list_of(element_id: int, element: Type, *, required: bool = False) -> List:
    """A list whose element has this id."""
    return List(Field(element_id, "element", element, required))


def map_of(
    key_id: int, key: Type, value_id: int, value: Type, *, value_required: bool = False
) -> Map:
    """A map whose key and value have these ids."""
    return Map(
        Field(key_id, "key", key, required=True),
        Field(value_id, "value", value, required=value_required),
    )


def children(type_: Type) -> tuple[Field, ...]:
    """The fields directly inside a type."""
    match type_:
        case Struct(fields):
            return fields
        case List(element):
            return (element,)
        case Map(key, value):
            return (key, value)
        case _:
            return ()


def parse_scalar(name: str) -> Scalar:
    """Read a type as Iceberg prints it; what we do not support is refused by name."""
    if name in set(Primitive):
        return Primitive(name)
    decimal = _DECIMAL.fullmatch(name)
    if decimal is not None:
        precision, scale = int(decimal[1]), int(decimal[2])
        if 1 <= precision <= WIDEST_DECIMAL and scale <= precision:
            return Decimal(precision, scale)
    fixed = _FIXED.fullmatch(name)
    if fixed is not None:
        return Fixed(int(fixed[1]))
    message = f"the Iceberg type {name[:60]!r} is not supported"
    raise UnsupportedSchemaChangeError(message)


@dataclass(frozen=True, slots=True)
class Column:
    """A field with the path that leads to it from the top of the schema."""

    path: tuple[Field, ...]

    @property
    def field(self) -> Field:
        """The field itself."""
        return self.path[-1]

    @property
    def parents(self) -> tuple[Field, ...]:
        """What surrounds it, outermost first."""
        return self.path[:-1]

    @property
    def name(self) -> str:
        """The dotted name, as Iceberg's table properties spell it."""
        return ".".join(each.name for each in self.path)

    @property
    def repeated(self) -> bool:
        """Whether it lies inside a list or a map."""
        return any(isinstance(each.type, List | Map) for each in self.parents)

    @property
    def is_leaf(self) -> bool:
        """Whether values of it are stored."""
        return not isinstance(self.field.type, Nested)


@dataclass(frozen=True, slots=True)
class Schema:
    """A table's columns in order, and which of them identify a row."""

    schema_id: int
    fields: tuple[Field, ...]
    identifier_ids: frozenset[int] = frozenset()

    def columns(self) -> Iterator[Column]:
        """Every field at any depth, parents before their children."""
        for each in self.fields:
            yield from _columns_below((each,))

    def leaves(self) -> Iterator[Column]:
        """The fields whose values are stored, in the order of a Parquet file."""
        return (column for column in self.columns() if column.is_leaf)

    def by_id(self, field_id: int) -> Column | None:
        """The field with this id, at any depth."""
        return next((each for each in self.columns() if each.field.id == field_id), None)

    def numbers_of(self, column: Column) -> tuple[int, ...]:
        """The column's place among its siblings, from the top to itself."""
        siblings, numbers = self.fields, []
        for each in column.path:
            numbers.append([sibling.id for sibling in siblings].index(each.id))
            siblings = children(each.type)
        return tuple(numbers)

    def by_name(self, name: str) -> Column | None:
        """The field with this dotted name, at any depth."""
        return next((each for each in self.columns() if each.name == name), None)


def _columns_below(path: tuple[Field, ...]) -> Iterator[Column]:
    yield Column(path)
    for child in children(path[-1].type):
        yield from _columns_below((*path, child))
