"""The statements that read claimed events: documents are taken apart by the server; pure.

What a row shows is its image: the new row of an INSERT or UPDATE, the old one of a DELETE, and the
values of the key where the event has them beside. A value comes as its text, so that numbers keep
every digit. What an UPDATE lacks is not null: it has not changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from frazil.model.postgres.names import quote_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from frazil.sources.buffer.relations import BufferRelations
    from frazil.sources.buffer.shape import TableShape

# Where the columns of an answer are; values and old keys follow.
ID, LSN, ORIGIN, OPERATION, TIME, PROBLEM, MISSING = range(7)
FIRST_VALUE: Final = 7

# By the number that the server answers with.
PROBLEMS: Final = (
    "its operation is not one of INSERT, UPDATE, DELETE and TRUNCATE",
    "its position is not of the form 16/B374D848",
    "its new row is not an object of JSON",
    "it has a column that no table can have, by its name",
    "it has no time",
)
_NO_OPERATION, _NO_LSN, _NO_ROW, _NO_COLUMN, _NO_TIME = range(len(PROBLEMS))
_IS_LSN: Final = "event.lsn ~ '^[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}$'"
_KEY_OBJECT: Final = (
    "case when jsonb_typeof(event.key_columns) = 'object' then event.key_columns"
    " else '{}'::jsonb end"
)
# Not evaluated again for every column that is taken out of it.
_IMAGE: Final = f"""
    select case
        when event.operation = 'DELETE' then
            case when jsonb_typeof(event.before_data) = 'object' then event.before_data
                else '{{}}'::jsonb end
            || {_KEY_OBJECT}
        when event.operation <> 'TRUNCATE' and jsonb_typeof(event.after_data) = 'object' then
            case when jsonb_typeof(event.key_columns) = 'object'
                then event.key_columns || event.after_data else event.after_data end
    end as row offset 0
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedEvents:
    """Events of one table in one batch; those between two ids, or all of them."""

    relations: BufferRelations
    pipeline: str
    batch: int
    source_id: str
    schema: str
    name: str
    first_id: int
    last_id: int

    def joined(self) -> str:
        """From the claim to the events, in this order: each of them once, found by its id."""
        lowest, highest = int(self.first_id), int(self.last_id)
        return f"""
            from {self.relations.claimed_tables} as claimed
            cross join lateral unnest(claimed.first_ids, claimed.last_ids)
                as run (first_id, last_id)
            cross join lateral (
                select event.* from {self.relations.events} as event
                where event.id >= greatest(run.first_id, {lowest})
                    and event.id <= least(run.last_id, {highest})
                offset 0
            ) as event
            cross join lateral ({_IMAGE}) as image
            where claimed.pipeline = {quote_literal(self.pipeline)}
                and claimed.batch = {int(self.batch)}
                and claimed.source_id = {quote_literal(self.source_id)}
                and claimed.schema_name = {quote_literal(self.schema)}
                and claimed.table_name = {quote_literal(self.name)}
                and run.last_id >= {lowest} and run.first_id <= {highest}
        """  # noqa: S608 - names and literals are quoted, numbers are numbers


@dataclass(frozen=True, slots=True)
class RowColumns:
    """What to take out of images: columns by name, and which of them are the key."""

    names: tuple[str, ...]
    key: tuple[str, ...]
    unusable: tuple[str, ...] = field(default=())


def row_columns(shape: TableShape, unusable: Sequence[str]) -> RowColumns:
    """The columns of a shape."""
    by_number = {each.number: each.name for each in shape.columns}
    key = tuple(by_number[number] for number in shape.key)
    return RowColumns(shape.names, key, tuple(unusable))


def rows_query(events: ClaimedEvents, columns: RowColumns) -> str:
    """One row for each event, in the order of the constants above."""
    values = [f"image.row ->> {quote_literal(each)}" for each in columns.names]
    olds = [_old_value(each) for each in columns.key]
    selected = (
        "event.id",
        f"case when {_IS_LSN} then event.lsn::pg_lsn end",
        "coalesce(event.lsn, '')",
        "event.operation",
        "coalesce(event.event_time, event.created_at)",
        _problem(columns.unusable),
        _missing(columns.names),
        *values,
        *olds,
    )
    return f"select {', '.join(selected)} {events.joined()}"


def payloads_query(events: ClaimedEvents, ids: Iterable[int]) -> str:
    """The events with these ids, as JSON."""
    listed = ", ".join(str(int(each)) for each in ids)
    return f"""
        select event.id, to_jsonb(event)::text from {events.relations.events} as event
        where event.id in ({listed})
    """  # noqa: S608 - names and literals are quoted, numbers are numbers


def has_others_query(events: ClaimedEvents, names: Sequence[str]) -> str:
    """Whether an image has a value under another name than these."""
    others = f"(image.row - {_array(names)})"
    return f"""
        select exists (
            select {events.joined()}
                and {others} <> '{{}}' and jsonb_strip_nulls{others} <> '{{}}'
        )
    """


def others_query(events: ClaimedEvents, names: Sequence[str]) -> str:
    """The other names, each with what all of its values are."""
    return f"""
        select pair.key,
            bool_and(jsonb_typeof(pair.value) = 'boolean'),
            bool_and(
                case when jsonb_typeof(pair.value) = 'number' and pair.value::text !~ '[.]'
                then pair.value::numeric between -9223372036854775808 and 9223372036854775807
                else false end
            )
        from (select image.row - {_array(names)} as others {events.joined()}) as events
        cross join lateral jsonb_each(events.others) as pair
        where jsonb_typeof(pair.value) <> 'null'
        group by pair.key order by pair.key
    """  # noqa: S608 - as above


def keys_query(events: ClaimedEvents) -> str:
    """The names of key columns that events have, in the order given; more than one is too many."""
    return f"""
        select distinct case jsonb_typeof(event.key_columns)
            when 'array' then array(select jsonb_array_elements_text(event.key_columns))
            when 'object' then array(select jsonb_object_keys(event.key_columns))
        end as names
        {events.joined()}
            and event.operation <> 'TRUNCATE' and jsonb_typeof(event.key_columns) is not null
        limit 3
    """


def _old_value(name: str) -> str:
    return (
        "case when event.operation = 'UPDATE' and jsonb_typeof(event.before_data) = 'object'"
        f" then event.before_data ->> {quote_literal(name)} end"
    )


def _problem(unusable: Sequence[str]) -> str:
    named = f"when image.row ?| {_array(unusable)} then '{_NO_COLUMN}'" if unusable else ""
    return f"""case
        when event.operation is null
            or event.operation not in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE')
            then '{_NO_OPERATION}'
        when event.lsn is null or not {_IS_LSN} then '{_NO_LSN}'
        when image.row is null and event.operation <> 'TRUNCATE' then '{_NO_ROW}'
        when event.event_time is null and event.created_at is null then '{_NO_TIME}'
        {named}
    end"""


def _missing(names: Sequence[str]) -> str:
    """A digit for every column, 0 where an UPDATE lacks it; null where it lacks none."""
    if not names:
        return "null::text"
    digits = " || ".join(
        f"case when image.row ? {quote_literal(each)} then '1' else '0' end" for each in names
    )
    return (
        f"case when event.operation = 'UPDATE' and not image.row ?& {_array(names)}"
        f" then {digits} end"
    )


def _array(names: Iterable[str]) -> str:
    return f"array[{', '.join(map(quote_literal, names))}]::text[]"
