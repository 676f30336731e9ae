"""The changelog's columns that control a merge (key, sequence, operation), found by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from frazil.errors import ConfigError
from frazil.model.schema.change import widens
from frazil.model.schema.reserved_names import why_reserved
from frazil.model.schema.types import Decimal, List, Nested, Primitive, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from frazil.merge.planning.settings import MergeSettings
    from frazil.model.schema.types import Field, Scalar, Schema, Type

# Types that sort alike in Spark, in Arrow, and as the text that a marker keeps.
_SEQUENCE_TYPES = frozenset(
    {
        Primitive.STRING,
        Primitive.INT,
        Primitive.LONG,
        Primitive.TIMESTAMP,
        Primitive.TIMESTAMPTZ,
    }
)
_FIELD_ID_TYPES = frozenset({Primitive.INT, Primitive.LONG})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogColumns:
    """Columns as the changelog has them; ``previous_members`` are in the order of the key."""

    key: tuple[Field, ...]
    sequence: Field
    operation: Field
    unchanged: Field | None = None
    previous_key: Field | None = None
    previous_members: tuple[Field, ...] = ()

    # ``plan_columns`` refuses nested types for both.
    @property
    def sequence_type(self) -> Scalar:
        """The type that changes are ordered by."""
        return cast("Scalar", self.sequence.type)

    @property
    def typed_key(self) -> tuple[tuple[str, Scalar], ...]:
        """The names of the key's columns, and their types."""
        return tuple((each.name, cast("Scalar", each.type)) for each in self.key)


def plan_columns(changelog: Schema, settings: MergeSettings) -> ChangelogColumns:
    """Find the columns that the settings name, without regard to case where that is clear.

    Columns for unchanged fields and for the previous key may be missing. Raises ConfigError with
    every column that must be there and is not, or that cannot be what it is said to be.
    """
    reserved = [(each.name, why_reserved(each.name)) for each in changelog.fields]
    taken = [f"the column {name!r}: {why}" for name, why in reserved if why is not None]
    _refuse(taken, changelog, settings, "rename it with ALTER TABLE ... RENAME COLUMN")
    named = [("key", name) for name in settings.key]
    named += [("sequence", settings.sequence), ("operation", settings.operation)]
    found = [find_column(changelog.fields, name) for _, name in named]
    missing = [
        f"there is no {role} column {name!r}"
        for (role, name), column in zip(named, found, strict=True)
        if column is None
    ]
    _refuse(missing, changelog, settings)
    *key, sequence, operation = (column for column in found if column is not None)
    previous = find_column(changelog.fields, settings.previous_key)
    columns = ChangelogColumns(
        key=tuple(key),
        sequence=sequence,
        operation=operation,
        unchanged=find_column(changelog.fields, settings.unchanged),
        previous_key=previous,
        previous_members=() if previous is None else _paired_members(previous.type, key),
    )
    _refuse(_misfits(columns, settings), changelog, settings)
    return columns


def check_partial_rows(
    columns: ChangelogColumns, changelog: Schema, settings: MergeSettings
) -> None:
    """Refuse columns that describe partial rows in another form than ours.

    If they were ignored, values that were not sent would become nulls.
    """
    mistakes = []
    unchanged, previous = columns.unchanged, columns.previous_key
    if unchanged is not None and not _is_list_of_ids(unchanged.type):
        mistakes.append(f"the column {unchanged.name!r} is {unchanged.type}, not list<int>")
    if previous is not None and not columns.previous_members:
        key = ", ".join(f"{each.name}: {each.type}" for each in columns.key)
        mistakes.append(f"the column {previous.name!r} is {previous.type}, not struct<{key}>")
    _refuse(mistakes, changelog, settings)


def source_columns(fields: Iterable[Field], settings: MergeSettings) -> tuple[Field, ...]:
    """The source's own columns among those of a changelog, in their order."""
    ours = (settings.operation, settings.sequence, settings.unchanged, settings.previous_key)
    names = {name.lower() for name in (*ours, *settings.bookkeeping)}
    return tuple(each for each in fields if each.name.lower() not in names)


def settings_at(settings: MergeSettings, *, now: Schema, then: Schema) -> MergeSettings:
    """The same settings with the names that the columns had in an older schema."""
    older = {each.id: each.name for each in then.fields}

    def name_then(name: str) -> str:
        column = find_column(now.fields, name)
        return name if column is None else older.get(column.id, name)

    return replace(
        settings,
        key=tuple(map(name_then, settings.key)),
        sequence=name_then(settings.sequence),
        operation=name_then(settings.operation),
        unchanged=name_then(settings.unchanged),
        previous_key=name_then(settings.previous_key),
        bookkeeping=tuple(map(name_then, settings.bookkeeping)),
    )


def find_column(fields: Iterable[Field], name: str) -> Field | None:
    """The column of this name, or the only one that differs from it in case alone."""
    alike = [each for each in fields if each.name.lower() == name.lower()]
    exact = [each for each in alike if each.name == name]
    found = exact or alike
    return found[0] if len(found) == 1 else None


def _refuse(
    mistakes: Sequence[str],
    changelog: Schema,
    settings: MergeSettings,
    next_step: str = "name the columns as the changelog has them",
) -> None:
    if not mistakes:
        return
    known = ", ".join(f"{each.name} {each.type}" for each in changelog.fields)
    message = f"the changelog cannot be merged: {'; '.join(mistakes)}. Its columns are: {known}."
    raise ConfigError(
        message,
        mistakes=tuple(mistakes),
        table=str(settings.changelog),
        next_step=next_step,
    )


def _misfits(columns: ChangelogColumns, settings: MergeSettings) -> list[str]:
    mistakes = [] if columns.key else ["the key has no columns"]
    if len({each.id for each in columns.key}) < len(columns.key):
        mistakes.append("the key names a column twice")
    own = set(columns.key) - set(source_columns(columns.key, settings))
    mistakes += [f"the key column {each.name!r} is none of the source's" for each in own]
    mistakes += [
        f"the key column {each.name!r} is {each.type}, which is no single value"
        for each in columns.key
        if isinstance(each.type, Nested)
    ]
    if not _is_sequence(columns.sequence.type):
        mistakes.append(
            f"the sequence column {columns.sequence.name!r} is {columns.sequence.type}, not text, "
            "an integer, a decimal or a timestamp"
        )
    if columns.operation.type is not Primitive.STRING:
        mistakes.append(
            f"the operation column {columns.operation.name!r} is {columns.operation.type}, not text"
        )
    return mistakes


def _is_sequence(type_: Type) -> bool:
    return isinstance(type_, Decimal) or type_ in _SEQUENCE_TYPES


def _is_list_of_ids(type_: Type) -> bool:
    return isinstance(type_, List) and type_.element.type in _FIELD_ID_TYPES


def _paired_members(type_: Type, key: Sequence[Field]) -> tuple[Field, ...]:
    """The member for each key column, or none at all if the struct is not of this key.

    Members keep the names that the key had when the changelog was made. Those whose names do not
    match any more are taken in their order.
    """
    if not isinstance(type_, Struct) or len(type_.fields) != len(key):
        return ()
    by_name = [find_column(type_.fields, each.name) for each in key]
    rest = [each for each in type_.fields if each not in by_name]
    in_order = all(
        found is None or found == member
        for found, member in zip(by_name, type_.fields, strict=True)
    )
    if len(rest) > 1 and not in_order:
        # The order of the key has changed as well, so it does not identify the members.
        return ()
    left = iter(rest)
    members = tuple(next(left) if found is None else found for found in by_name)
    pairs = zip(key, members, strict=True)
    fits = all(_holds(column.type, member.type) for column, member in pairs)
    return members if fits and len(set(members)) == len(members) else ()


def _holds(type_: Type, member: Type) -> bool:
    """Whether a key column holds the values of the member, which may still have a narrower type."""
    if isinstance(type_, Nested) or isinstance(member, Nested):
        return False
    return type_ == member or widens(member, type_)
