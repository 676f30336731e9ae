"""The statements that read claimed events: documents are taken apart by the server; pure.

Events of many tables are read at once, in the order that they lie in: a table is known by its
number, and the names of its columns are joined to its events. What a row shows is its image: the
new row of an INSERT or UPDATE, the old one of a DELETE, and the values of the key where the event
has them beside. A value comes as its text, so that numbers keep every digit. What an UPDATE lacks
is taken from its old row where the event has all of that; else it is not null: it has not changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from frazil.model.postgres.names import quote_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from frazil.sources.buffer.reading.shape import GrownShape
    from frazil.sources.buffer.relations import BufferRelations

# Where the columns of an answer are; values and old keys follow.
ID, TABLE, LSN, ORIGIN, OPERATION, TIME, PROBLEM, MISSING = range(8)
FIRST_VALUE: Final = 8

# By the number that the server answers with.
PROBLEMS: Final = (
    "its operation is not one of INSERT, UPDATE, DELETE and TRUNCATE",
    "its position is not of the form 16/B374D848",
    "its new row is not an object of JSON",
    "it has a column that no table can have, by its name",
    "it has no time",
)
_NO_OPERATION, _NO_LSN, _NO_ROW, _NO_COLUMN, _NO_TIME = range(len(PROBLEMS))
# Events are found by their ids, and tables by their names in a hash: statistics cannot tell how few
# rows a run of ids has, and a plan that reads the whole table takes for ever.
BY_INDEX: Final = """
    select set_config('enable_seqscan', 'off', false), set_config('enable_material', 'off', false),
        set_config('enable_nestloop', 'off', false), set_config('enable_mergejoin', 'off', false),
        set_config('jit', 'off', false)
"""
_IS_LSN: Final = "event.lsn ~ '^[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}$'"
_OBJECT: Final = "case when jsonb_typeof({it}) = 'object' then {it} else '{{}}'::jsonb end"
# An old row of the replica identity alone has nulls for all that is not in the key: such a null is
# no value. One with any other value is all of the row.
_IS_WHOLE: Final = """
    jsonb_typeof(event.before_data) = 'object'
    and jsonb_strip_nulls(event.before_data - shape.key_names) <> '{}'
"""
# Not evaluated again for every column that is taken out of it.
_IMAGE: Final = """
    select case
        when event.operation = 'DELETE' then {before} || {key}
        when event.operation <> 'TRUNCATE' and jsonb_typeof(event.after_data) = 'object' then
            case
                when event.operation = 'UPDATE' and {lacks_columns} and {is_whole}
                    then event.before_data || {key} || event.after_data
                when jsonb_typeof(event.key_columns) = 'object'
                    then event.key_columns || event.after_data
                else event.after_data
            end
    end as row offset 0
"""
_LACKS_COLUMNS: Final = "not event.after_data ?& shape.names"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedColumns:
    """A table of a batch: which of its columns are known, and which of those are the key."""

    source_id: str
    schema: str
    name: str
    columns: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    unusable: tuple[str, ...] = ()


def named_columns(source_id: str, schema: str, name: str, grown: GrownShape) -> NamedColumns:
    """The columns of a shape."""
    by_number = {each.number: each.name for each in grown.shape.columns}
    return NamedColumns(
        source_id=source_id,
        schema=schema,
        name=name,
        columns=grown.shape.names,
        key=tuple(by_number[number] for number in grown.shape.key),
        unusable=tuple(grown.unusable),
    )


class EventChoice(Protocol):
    """Which events a statement is about."""

    def joined(self, tables: Sequence[NamedColumns], *, fills_all: bool = False) -> str:
        """From them to their tables and images, up to a condition that others may follow.

        With ``fills_all``, old rows are looked into also where all known columns are there.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedEvents:
    """Events of one batch between two ids: each once, found by its id."""

    relations: BufferRelations
    pipeline: str
    batch: int
    first_id: int
    last_id: int

    def joined(self, tables: Sequence[NamedColumns], *, fills_all: bool = False) -> str:
        """As every choice does."""
        lowest, highest = int(self.first_id), int(self.last_id)
        return f"""
            from {self.relations.claimed_batches} as claimed
            cross join lateral unnest(claimed.ids) as run (ids)
            cross join lateral (
                select event.* from {self.relations.events} as event
                where event.id >= greatest(lower(run.ids), {lowest})
                    and event.id < least(upper(run.ids), {highest + 1})
                offset 0
            ) as event
            {_with_images(tables, fills_all=fills_all)}
            where claimed.pipeline = {quote_literal(self.pipeline)}
                and claimed.batch = {int(self.batch)}
                and lower(run.ids) <= {highest} and upper(run.ids) > {lowest}
        """  # noqa: S608 - names and literals are quoted, numbers are numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEvents:
    """The oldest pending events of one table, so many of them at most."""

    relations: BufferRelations
    source_id: str
    schema: str
    name: str
    most: int

    def joined(self, tables: Sequence[NamedColumns], *, fills_all: bool = False) -> str:
        """As every choice does."""
        return f"""
            from (
                select event.* from {self.relations.events} as event
                where event.processed_at is null
                    and event.source_id = {quote_literal(self.source_id)}
                    and event.schema_name = {quote_literal(self.schema)}
                    and event.table_name = {quote_literal(self.name)}
                order by event.created_at limit {int(self.most)}
            ) as event
            {_with_images(tables, fills_all=fills_all)}
            where true
        """  # noqa: S608 - names and literals are quoted, numbers are numbers


def _with_images(tables: Sequence[NamedColumns], *, fills_all: bool) -> str:
    image = _IMAGE.format(
        before=_OBJECT.format(it="event.before_data"),
        key=_OBJECT.format(it="event.key_columns"),
        lacks_columns="true" if fills_all else _LACKS_COLUMNS,
        is_whole=_IS_WHOLE,
    )
    return f"""
            join ({_shapes(tables)}) on event.table_name = shape.table_name
                and event.schema_name = shape.schema_name and event.source_id = shape.source_id
            cross join lateral ({image}) as image
    """


def rows_query(events: ClaimedEvents, tables: Sequence[NamedColumns]) -> str:
    """One row for each event, in the order of the constants above; tables count from 0.

    Every row has as many values and old keys as the table with the most of them.
    """
    width, keys = widths(tables)
    selected = (
        "event.id",
        "shape.number",
        f"case when {_IS_LSN} then event.lsn::pg_lsn end",
        "coalesce(event.lsn, '')",
        "event.operation",
        "coalesce(event.event_time, event.created_at)",
        _problem(has_unusable=any(each.unusable for each in tables)),
        _missing(width),
        *(f"image.row ->> shape.c{at}" for at in range(width)),
        *(_old_value(at) for at in range(keys)),
    )
    return f"select {', '.join(selected)} {events.joined(tables)}"


def widths(tables: Iterable[NamedColumns]) -> tuple[int, int]:
    """How many values and old keys a row of these tables has."""
    each = [(len(it.columns), len(it.key)) for it in tables]
    return max(columns for columns, _ in each), max(keys for _, keys in each)


def payloads_query(events: ClaimedEvents, ids: Iterable[int]) -> str:
    """The events with these ids, as JSON."""
    listed = ", ".join(str(int(each)) for each in ids)
    return f"""
        select event.id, to_jsonb(event)::text from {events.relations.events} as event
        where event.id in ({listed})
    """  # noqa: S608 - names and literals are quoted, numbers are numbers


def has_others_query(events: EventChoice, tables: Sequence[NamedColumns]) -> str:
    """The numbers of tables with an image that has a value under another name than these."""
    others = "(image.row - shape.names)"
    return f"""
        select distinct shape.number {events.joined(tables, fills_all=True)}
            and {others} <> '{{}}' and jsonb_strip_nulls{others} <> '{{}}'
    """


def others_query(events: EventChoice, tables: Sequence[NamedColumns]) -> str:
    """The other names of each table, with how many values there are, by what they are."""
    return f"""
        select number, key, count(*), count(*) filter (where kind = 'boolean'),
            count(*) filter (where kind = 'number'), count(*) filter (where is_integer)
        from (
            select events.number, pair.key, jsonb_typeof(pair.value) as kind,
                case when jsonb_typeof(pair.value) = 'number' and pair.value::text !~ '[.]'
                then pair.value::numeric between -9223372036854775808 and 9223372036854775807
                else false end as is_integer
            from (
                select shape.number, image.row - shape.names as others
                {events.joined(tables, fills_all=True)}
            ) as events
            cross join lateral jsonb_each(events.others) as pair
        ) as seen
        where kind <> 'null' group by number, key order by number, key
    """  # noqa: S608 - as above


def keys_query(events: EventChoice, tables: Sequence[NamedColumns]) -> str:
    """The names of key columns that events of each table have, in the order given."""
    return f"""
        select number, names from (
            select shape.number, case jsonb_typeof(event.key_columns)
                when 'array' then array(select jsonb_array_elements_text(event.key_columns))
                when 'object' then array(select jsonb_object_keys(event.key_columns))
            end as names
            {events.joined(tables)}
                and event.operation <> 'TRUNCATE' and jsonb_typeof(event.key_columns) is not null
        ) as seen
        group by number, names
    """  # noqa: S608 - as above


def _shapes(tables: Sequence[NamedColumns]) -> str:
    """The tables as rows: what each is called, its columns one by one, and as lists."""
    width, keys = widths(tables)
    columns = ["number", "source_id", "schema_name", "table_name", "names", "key_names", "unusable"]
    columns += [f"c{at}" for at in range(width)] + [f"k{at}" for at in range(keys)]
    rows = ", ".join(
        f"({', '.join(_cells(number, each, width, keys))})" for number, each in enumerate(tables)
    )
    return f"values {rows}) as shape ({', '.join(columns)}"


def _cells(number: int, table: NamedColumns, width: int, keys: int) -> Iterator[str]:
    yield str(number)
    yield from (f"{quote_literal(it)}::text" for it in (table.source_id, table.schema, table.name))
    yield _array(table.columns)
    yield _array(table.key)
    yield _array(table.unusable) if table.unusable else "null::text[]"
    yield from _padded(table.columns, width)
    yield from _padded(table.key, keys)


def _padded(names: Sequence[str], width: int) -> Iterator[str]:
    yield from (f"{quote_literal(each)}::text" for each in names)
    yield from ("null::text" for _ in range(width - len(names)))


def _old_value(at: int) -> str:
    return (
        "case when event.operation = 'UPDATE' and jsonb_typeof(event.before_data) = 'object'"
        f" then event.before_data ->> shape.k{at} end"
    )


def _problem(*, has_unusable: bool) -> str:
    named = f"when image.row ?| shape.unusable then '{_NO_COLUMN}'" if has_unusable else ""
    return f"""case
        when event.operation is null
            or event.operation not in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE')
            then '{_NO_OPERATION}'
        when event.lsn is null or not {_IS_LSN} then '{_NO_LSN}'
        when image.row is null and event.operation <> 'TRUNCATE' then '{_NO_ROW}'
        when event.event_time is null and event.created_at is null then '{_NO_TIME}'
        {named}
    end"""


def _missing(width: int) -> str:
    """A digit for every column, 0 where an UPDATE lacks it; null where it lacks none."""
    if not width:
        return "null::text"
    digits = " || ".join(
        f"case when shape.c{at} is null or image.row ? shape.c{at} then '1' else '0' end"
        for at in range(width)
    )
    return (
        f"case when event.operation = 'UPDATE' and not image.row ?& shape.names then {digits} end"
    )


def _array(names: Iterable[str]) -> str:
    return f"array[{', '.join(map(quote_literal, names))}]::text[]"
