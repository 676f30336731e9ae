"""From a source's table to the schema of its changelog, by number; pure.

A changelog that exists is never matched by name or position, with one exception: a copy that
begins again leaves no older row in force, so that there a name says more than a number, which a
table that was made again has given again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.changelog.layout import CdcColumns, changelog_schema, refuse_collisions
from frazil.errors import UnsupportedSchemaChangeError
from frazil.ingest.planning.changelog_following import ChangelogFollowing, find_field
from frazil.ingest.planning.column_numbers import (
    NO_NUMBER,
    ColumnNumbers,
    NumberedField,
    decode_column_numbers,
    encode_column_numbers,
)
from frazil.model.command import command
from frazil.model.policy import Evolution
from frazil.model.schema.change import SchemaChange, Widen, plan_evolution, sentences
from frazil.model.schema.types import Field, Schema, Struct
from frazil.model.table_facts import COLUMNS_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from frazil.model.policy import OnDrop
    from frazil.model.source_table import SourceTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogNow:
    """A changelog as it is; ``columns`` is the text of the property ``frazil.columns``.

    ``pinned`` are the fields that its partitioning or its sort order needs.
    """

    schema: Schema
    last_column_id: int
    columns: str | None
    format_version: int
    pinned: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogPlan:
    """The schema that a changelog gets, and where the source's columns go in it.

    ``schema`` keeps the id of the one it was made from. ``columns`` is the text for the property
    ``frazil.columns``. ``field_ids`` leads from a column's number to its field, ``key_ids`` from a
    key column's number to its member in the previous key. ``changes`` are sentences for people;
    ``added`` and ``widened`` are names of columns.
    """

    schema: Schema
    columns: str
    field_ids: Mapping[int, int]
    key_ids: Mapping[int, int] = field(default_factory=dict)
    is_new: bool = False
    evolves: bool = False
    changes: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()


def plan_changelog(
    table: SourceTable,
    current: ChangelogNow | None,
    *,
    prefix: str,
    on_drop: OnDrop,
    evolution: Evolution,
    restart: bool = False,
    takes_over: bool = False,
) -> ChangelogPlan:
    """What the changelog's schema becomes; without a changelog, its first schema.

    ``restart`` says that the rows to come replace all that is there: then a type or a key may
    change in any way, and a field that cannot follow is replaced by a new one. ``takes_over`` says
    that the rows that are there stay, and that only names say whose its fields are. Raises
    ConfigError for a column that is called like one of ours, UnsupportedSchemaChangeError with
    every difference that cannot be followed.
    """
    ours = CdcColumns(prefix, table.layout)
    refuse_collisions([each.name for each in table.columns], ours)
    if current is None:
        return _plan_new(table, ours)
    known = _known(table, current, restart=restart or takes_over)
    following = ChangelogFollowing(
        ours=ours,
        current=current.schema.fields,
        known=known,
        last_id=current.last_column_id,
        pinned=current.pinned,
        on_drop=on_drop,
        keeps_defaults=current.format_version >= _DEFAULTS_SINCE,
        restart=restart,
        matches_names=restart or takes_over,
    )
    fields = following.follow(table)
    following.refused += _clashes(fields)
    wanted = Schema(current.schema.schema_id, fields, current.schema.identifier_ids)
    change = _change(following.refused, current, wanted, table)
    changes = (*sentences(change, current.schema, wanted), *following.notices)
    if changes and evolution is Evolution.STRICT:
        what = "the table has changed, and evolution is strict"
        raise _unsupported(what, changes, table, "set evolution: permissive, or change it back")
    numbers = _numbers(table, following.field_ids, following.key_ids, known, restart=restart)
    return ChangelogPlan(
        schema=wanted,
        columns=encode_column_numbers(numbers),
        field_ids=following.field_ids,
        key_ids=following.key_ids,
        evolves=bool(change),
        changes=changes,
        added=tuple(following.added),
        widened=_widened(table, change, following.field_ids, wanted),
    )


# Readers of older versions know no defaults and would show nulls.
_DEFAULTS_SINCE = 3


def _plan_new(table: SourceTable, ours: CdcColumns) -> ChangelogPlan:
    """Without defaults: a copy brings every row."""
    # Numbered by the layout.
    fields = [Field(0, each.name, each.type, each.required) for each in table.columns]
    if clashes := list(_clashes(fields)):
        what = "the changelog cannot be made"
        raise _unsupported(what, clashes, table, "rename one of them at the source")
    key_names = [table.column(number).name for number in table.key]
    schema = changelog_schema(fields, key_names, ours.prefix, ours.layout)
    pairs = zip(table.columns, schema.fields, strict=False)
    field_ids = {column.number: made.id for column, made in pairs}
    previous = find_field(schema.fields, ours.previous_key)
    key_ids = {}
    if previous is not None and isinstance(previous.type, Struct):
        members = zip(table.key, previous.type.fields, strict=True)
        key_ids = {number: member.id for number, member in members}
    numbers = _numbers(table, field_ids, key_ids, ColumnNumbers(), restart=True)
    return ChangelogPlan(
        schema=schema,
        columns=encode_column_numbers(numbers),
        field_ids=field_ids,
        key_ids=key_ids,
        is_new=True,
        added=tuple(each.name for each in table.columns),
    )


def _known(table: SourceTable, current: ChangelogNow, *, restart: bool) -> ColumnNumbers:
    if current.columns is not None:
        return decode_column_numbers(current.columns, table=table.name)
    if restart:
        # It is not known whose its fields are; those of the right name are taken over.
        return ColumnNumbers()
    what = f"the changelog has lost its property {COLUMNS_PROPERTY}"
    raise _unsupported(what, (), table)


def _change(
    refused: Sequence[str], current: ChangelogNow, wanted: Schema, table: SourceTable
) -> SchemaChange:
    """The steps; raises with those that are not to be had, and with everything else refused."""
    all_refused = list(refused)
    change, cause = SchemaChange(()), None
    try:
        change = plan_evolution(
            current.schema,
            wanted,
            last_column_id=current.last_column_id,
            format_version=current.format_version,
        )
    except UnsupportedSchemaChangeError as error:
        cause = error
        all_refused.append(error.message.removeprefix("the schema cannot follow: "))
    if all_refused:
        raise _unsupported("the changelog cannot follow", all_refused, table) from cause
    return change


def _clashes(fields: Sequence[Field]) -> Iterator[str]:
    """Spark compares names without regard to case."""
    by_name: dict[str, list[str]] = {}
    for each in fields:
        by_name.setdefault(each.name.lower(), []).append(each.name)
    for names in by_name.values():
        if len(names) > 1:
            yield f"{' and '.join(names)} would be one column to Spark"


def _widened(
    table: SourceTable, change: SchemaChange, field_ids: Mapping[int, int], wanted: Schema
) -> tuple[str, ...]:
    tops = {column.field.id: column.path[0].id for column in wanted.columns()}
    widened = {tops[step.id] for step in change.steps if isinstance(step, Widen)}
    return tuple(each.name for each in table.columns if field_ids[each.number] in widened)


def _numbers(
    table: SourceTable,
    field_ids: Mapping[int, int],
    key_ids: Mapping[int, int],
    known: ColumnNumbers,
    *,
    restart: bool,
) -> ColumnNumbers:
    live = tuple(
        NumberedField(
            number=each.number,
            field=field_ids[each.number],
            previous=key_ids.get(each.number),
        )
        for each in table.columns
    )
    fields = set(field_ids.values())
    gone = tuple(
        NumberedField(number=NO_NUMBER if restart else each.number, field=each.field, dropped=True)
        for each in known.columns
        if each.field not in fields
    )
    highest = max((table.highest_number, 0 if restart else known.highest, *field_ids))
    return ColumnNumbers(columns=(*live, *gone), key=table.key, highest=highest, shape=table.shape)


def _unsupported(
    what: str, differences: Sequence[str], table: SourceTable, next_step: str | None = None
) -> UnsupportedSchemaChangeError:
    listed = f": {'; '.join(differences)}" if differences else ""
    return UnsupportedSchemaChangeError(
        f"{what}{listed}.", table=table.name, next_step=next_step or command("resync", table.name)
    )
