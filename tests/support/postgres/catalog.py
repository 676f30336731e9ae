"""Types and text straight from a server, as a pinned session prints them."""

from __future__ import annotations

import io
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv

from frazil.codec.pgtext.convert import SESSION_SETTINGS
from frazil.model.postgres.types import PostgresType, TypeKind, TypeRow, resolve_type

_TYPES = """
select oid::int8,
       format_type(oid, null),
       case when typoutput = 'array_out'::regproc then 'a' else typtype end,
       case when typtype = 'd' then typbasetype else typelem end::int8,
       typtypmod,
       typdelim
from pg_type
"""

_COLUMN = """
select atttypid::int8, atttypmod
from pg_attribute
where attrelid = %s::regclass and attname = %s
"""


def pinned(dsn: str) -> psycopg.Connection[tuple[Any, ...]]:
    """A session whose text has one meaning; it prepares nothing, for tables come and go."""
    connection = psycopg.connect(dsn, autocommit=True, prepare_threshold=None)
    for name, value in SESSION_SETTINGS.items():
        connection.execute("select set_config(%s, %s, false)", (name, value))
    return connection


def column_type(
    connection: psycopg.Connection[tuple[Any, ...]], table: str, column: str
) -> PostgresType:
    """The type of a column, from the catalog."""
    rows = {
        oid: TypeRow(oid, name, TypeKind(kind), inner, modifier, delimiter)
        for oid, name, kind, inner, modifier, delimiter in connection.execute(_TYPES)
    }
    found = connection.execute(_COLUMN, (table, column)).fetchone()
    assert found is not None
    oid, modifier = found
    return resolve_type(oid, modifier, rows)


def copied_text(connection: psycopg.Connection[tuple[Any, ...]], query: str) -> pa.StringArray:
    """The one column of a query as COPY prints it; a null is distinguished from an empty text."""
    command = f"copy ({query}) to stdout (format csv, force_quote *)"
    with connection.cursor() as cursor, cursor.copy(command) as copy:
        data = b"".join(bytes(block) for block in copy)
    table = pyarrow.csv.read_csv(
        io.BytesIO(data),
        read_options=pyarrow.csv.ReadOptions(column_names=["v"]),
        # A null in a column of its own is an empty line.
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={"v": pa.string()},
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
    column = table.column("v").combine_chunks()
    return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
