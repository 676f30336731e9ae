"""The schema of a changelog: the source's columns, then ours; pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from frazil.errors import ConfigError, UnsupportedSchemaChangeError
from frazil.model.schema.reserved_names import why_reserved
from frazil.model.schema.table_layout import CDC_LAYOUT, OwnColumn, TableLayout
from frazil.model.schema.types import Field, List, Map, Primitive, Schema, Struct, list_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from frazil.model.schema.types import Type

DEFAULT_PREFIX = "cdc_"
# Some readers treat zero as "no id": Spark's Parquet reader and iceberg-go.
FIRST_ID = 1


@dataclass(frozen=True, slots=True)
class CdcColumns:
    """The names of our columns under a prefix, and which of them a table has."""

    prefix: str = DEFAULT_PREFIX
    layout: TableLayout = CDC_LAYOUT

    @property
    def operation(self) -> str:
        """READ, INSERT, UPDATE, DELETE or TRUNCATE."""
        return f"{self.prefix}operation"

    @property
    def sequence_number(self) -> str:
        """Epoch, commit position and ordinal as text that sorts in source order."""
        return f"{self.prefix}sequence_number"

    @property
    def timestamp(self) -> str:
        """The commit time at the source."""
        return f"{self.prefix}timestamp"

    @property
    def lsn(self) -> str:
        """The commit position as the source itself prints it."""
        return f"{self.prefix}lsn"

    @property
    def unchanged(self) -> str:
        """The field ids of the columns that the source did not send."""
        return f"{self.prefix}unchanged"

    @property
    def previous_key(self) -> str:
        """The old key, on the INSERT half of a key change only."""
        return f"{self.prefix}previous_key"

    @property
    def names(self) -> tuple[str, ...]:
        """Those that the table has, in its order."""
        return tuple(map(self.name, self.layout.columns))

    def name(self, column: OwnColumn) -> str:
        """The name of one of them."""
        return f"{self.prefix}{column}"


def changelog_schema(
    source_fields: Sequence[Field],
    key_names: Sequence[str],
    prefix: str = DEFAULT_PREFIX,
    layout: TableLayout = CDC_LAYOUT,
) -> Schema:
    """The schema of a new changelog; fields are renumbered, the source's columns first.

    Among changes every source column is optional, because a DELETE has only the key and a TRUNCATE
    nothing. Raises ConfigError when a source column has the name of one of ours.
    """
    ours = CdcColumns(prefix, layout)
    refuse_collisions([each.name for each in source_fields], ours)
    columns = {each.name: each for each in source_fields}
    missing = [name for name in key_names if name not in columns]
    if missing:
        message = f"the key column {missing[0]!r} is not among the table's columns."
        raise UnsupportedSchemaChangeError(message)
    key = Struct(tuple(_member(columns[name]) for name in key_names))
    own = _own_fields(ours, key if key_names else None)
    columns_first = (
        replace(each, required=each.required and not layout.has_operations)
        for each in source_fields
    )
    return Schema(0, number_fields((*columns_first, *own), first_id=FIRST_ID))


def number_fields(fields: Sequence[Field], *, first_id: int) -> tuple[Field, ...]:
    """The same fields with ids from this number on.

    Siblings are numbered before nested fields, as Iceberg numbers the columns of a new table, so
    that the planned ids are the ids the table gets.
    """
    return _numbered(tuple(fields), count(first_id))


def refuse_collisions(source_names: Iterable[str], ours: CdcColumns) -> None:
    """Raise ConfigError when a source column has the name of one of ours or of Iceberg's."""
    # Spark ignores the case of names. A merge finds all of ours by name, also those left out.
    own = tuple(OwnColumn) if ours.layout.has_operations else ()
    taken = {ours.name(each).lower() for each in own}
    for each in source_names:
        if (why := why_reserved(each)) is not None:
            message = f"the source column {each!r} cannot be mirrored: {why}."
            raise ConfigError(
                message,
                next_step="rename it at the source, or leave it out of the publication's columns",
            )
        if each.lower() in taken:
            message = (
                f"the source column {each!r} is called like a column of the changelog; "
                f"changelog.column_prefix is {ours.prefix!r}."
            )
            raise ConfigError(message, next_step="choose another changelog.column_prefix")


def _own_fields(ours: CdcColumns, key: Struct | None) -> Iterator[Field]:
    # Numbered afterwards.
    unnumbered = 0
    for column in ours.layout.columns:
        type_ = _OWN_TYPES.get(column, key)
        # Parquet has no struct without members.
        if type_ is not None:
            is_required = column in ours.layout.required
            yield Field(unnumbered, ours.name(column), type_, required=is_required)


_OWN_TYPES: Mapping[OwnColumn, Type] = {
    OwnColumn.OPERATION: Primitive.STRING,
    OwnColumn.SEQUENCE_NUMBER: Primitive.STRING,
    OwnColumn.TIMESTAMP: Primitive.TIMESTAMPTZ,
    OwnColumn.LSN: Primitive.STRING,
    OwnColumn.UNCHANGED: list_of(0, Primitive.INT, required=True),
}


def _member(column: Field) -> Field:
    # Null except for key changes, without a default.
    return replace(column, required=False, initial_default=None, write_default=None)


def _numbered(fields: tuple[Field, ...], ids: Iterator[int]) -> tuple[Field, ...]:
    siblings = [replace(each, id=next(ids)) for each in fields]
    return tuple(replace(each, type=_numbered_type(each.type, ids)) for each in siblings)


def _numbered_type(type_: Type, ids: Iterator[int]) -> Type:
    match type_:
        case Struct(fields):
            return Struct(_numbered(fields, ids))
        case List(element):
            return List(*_numbered((element,), ids))
        case Map(key, value):
            return Map(*_numbered((key, value), ids))
        case _:
            return type_
