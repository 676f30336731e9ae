"""Splits of a copy, read in tasks: each with a session of its own, in the snapshot of all.

Rows come in the binary form of COPY, and columns without a plain one as the text that the server
prints. What a value becomes does not depend on the way it came: see ``codec.pgcopy_values``.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil import errors
from frazil.clients.defects import defect_of_table
from frazil.clients.postgres.catalog_facts import load_snapshot_columns
from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.translation import UNDEFINED_COLUMN, UNDEFINED_TABLE
from frazil.codec.malformed import MalformedFileError
from frazil.codec.pgcopy.fields import rows_alone, split_fields
from frazil.codec.pgcopy.values import Wire, convert_binary, wire_of
from frazil.model.change import Operation
from frazil.sources.postgres.copy.planning import CopySplit, columns_query, copy_query
from frazil.sources.protocol import ChangeColumn, TableFailure, TableRows

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from frazil.clients.postgres.dsn import SecretText
    from frazil.clients.postgres.session import Session
    from frazil.codec.pgoutput.frames import Frames
    from frazil.errors import FrazilError
    from frazil.sources.postgres.copy.planning import CopyTable
    from frazil.sources.protocol import Reading, Split

# Large enough that work per batch is small compared to work per row.
MOST_ROWS = 1 << 16
# A batch is in memory three or four times: as it came, in one piece, and as columns.
MOST_BYTES = 8 << 20

# Behind the TRUNCATE that a copy may begin with.
_ORDINAL = 1
_UTC = pa.timestamp("us", tz="UTC")
_NUMBERS = pa.list_(pa.int32())
# The names were right when the copy was planned.
_MEANINGS: Mapping[str, type[FrazilError]] = dict.fromkeys(
    (UNDEFINED_COLUMN, UNDEFINED_TABLE), errors.UnsupportedSchemaChangeError
)


@dataclass(frozen=True)
class CopyReader:
    """Reads the splits of a copy, whose snapshot must be kept until the last one is read."""

    dsn: SecretText = field(repr=False)
    snapshot: str
    tables: tuple[CopyTable, ...]

    def read(self, split: Split) -> Iterator[Reading]:
        """The rows of a split, or why its table cannot be read.

        Raises SourceUnavailableError when the connection breaks or the snapshot is gone; the
        first may pass, with the second the copy begins again.
        """
        piece = split.payload
        if not isinstance(piece, CopySplit):
            message = f"a copy has no splits of the kind {type(piece).__name__}"
            raise TypeError(message)
        table = next(each for each in self.tables if each.name == piece.table)
        failure: FrazilError | None = None
        with (
            connect(self.dsn, purpose="copy") as session,
            session.one_view(snapshot=self.snapshot),
        ):
            try:
                with closing(_read(session, table, piece)) as batches:
                    for rows in batches:
                        yield TableRows(table.name, rows)
            except errors.SourceUnavailableError:
                raise
            except errors.UnsupportedSchemaChangeError:
                failure = _changed()
            except errors.FrazilError as error:
                failure = error
            except Exception as error:  # noqa: BLE001 - of one table, whatever it is
                failure = defect_of_table(error, table.name, "copying rows")
        if failure is not None:
            # What its frames hold, rows among it, need not live as long as the error.
            failure.with_traceback(None).table = table.name
            yield TableFailure(table.name, failure)


def _read(session: Session, table: CopyTable, split: CopySplit) -> Generator[pa.RecordBatch]:
    wires = _load_wires(session, table, split)
    printed = {
        column.number
        for column, wire in zip(table.columns, wires, strict=True)
        if wire is Wire.PRINTED
    }
    query = copy_query(table, split, printed=printed)
    messages = session.copy_out_rows(
        f"copy ({query}) to stdout (format binary)",
        doing=f"copying {table.name}",
        most_rows=MOST_ROWS,
        most_bytes=MOST_BYTES,
    )
    strange = None
    try:
        with closing(messages):
            for frames in rows_alone(messages):
                yield _batch(table, wires, frames)
    except MalformedFileError as error:
        strange = str(error)
    if strange is not None:
        message = f"the rows of a copy cannot be read: {strange}"
        raise errors.MalformedChangeError(message)


def _load_wires(session: Session, table: CopyTable, split: CopySplit) -> list[Wire]:
    """How each column comes; UnsupportedSchemaChangeError unless all are as in the snapshot."""
    # This takes the lock that prevents changes of the table until the session ends.
    columns = session.describe(
        columns_query(table, split), doing=f"copying {table.name}", meanings=_MEANINGS
    )
    numbers = load_snapshot_columns(session, split.relation)
    if numbers is None or any(numbers.get(each.name) != each.number for each in columns):
        message = "the table is not what it was in the snapshot"
        raise errors.UnsupportedSchemaChangeError(message)
    return [
        wire_of(each.type_oid, column.plan)
        for each, column in zip(columns, table.columns, strict=True)
    ]


def _changed() -> FrazilError:
    message = (
        "the table was changed, emptied or written again while it was being copied; its copy "
        "starts again."
    )
    return errors.SourceUnavailableError(message)


def _batch(table: CopyTable, wires: Sequence[Wire], frames: Frames) -> pa.RecordBatch:
    fields = split_fields(frames, len(wires))
    columns = {
        str(column.number): convert_binary(each, column.plan, wire).values
        for column, wire, each in zip(table.columns, wires, fields, strict=True)
    }
    about = _about_rows(table, len(frames), columns)
    return pa.RecordBatch.from_pydict(columns | about)


def _about_rows(
    table: CopyTable, count: int, columns: Mapping[str, pa.Array]
) -> dict[str, pa.Array]:
    """What is the same for every row of the table."""
    constants = {
        ChangeColumn.OPERATION: pa.scalar(Operation.READ.value, pa.string()),
        ChangeColumn.POSITION: pa.scalar(table.position, pa.uint64()),
        ChangeColumn.ORDINAL: pa.scalar(_ORDINAL, pa.uint64()),
        ChangeColumn.COMMITTED_AT: pa.scalar(table.committed_at, _UTC),
        ChangeColumn.ORIGIN: pa.scalar(table.origin, pa.string()),
    }
    about = {name: pa.repeat(value, count) for name, value in constants.items()}
    about[ChangeColumn.UNCHANGED] = pa.nulls(count, _NUMBERS)
    if table.key:
        key = pa.struct([(str(number), columns[str(number)].type) for number in table.key])
        about[ChangeColumn.PREVIOUS_KEY] = pa.nulls(count, key)
    return about
