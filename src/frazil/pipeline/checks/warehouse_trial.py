"""Whether a run could work: a table is created, written, read and removed with all it left."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from frazil.errors import StorageError
from frazil.hooks import SystemRandomness
from frazil.ledger.table import Ledger
from frazil.ledger.table_state import Streaming, TableState
from frazil.model.table_name import parse_table_name
from frazil.pipeline.tables.captured_mirrors import ledger_name

if TYPE_CHECKING:
    from frazil.clients.iceberg.lake import Lake
    from frazil.config import Config
    from frazil.model.table_name import TableName

_TOKEN_BYTES = 6


def try_writing(lake: Lake, config: Config) -> None:
    """Raises what keeps a table from being created, written, read or removed.

    The catalog, the store and both writers have a part in it, as in every batch: the driver
    writes metadata, and the writer of tasks a file with one row. It is read again, because some
    stores take what they do not understand for a part of the file.
    """
    name = _trial_name(config)
    is_new = not lake.has_namespace(name)
    try:
        trial = Ledger.ensure(lake, name, format_version=config.mirror.format_version)
        try:
            row = TableState(table=name.table, identity="", state=Streaming())
            trial.note([], pipeline=config.pipeline, batch=name.table, table_states=[row])
            if trial.table_states() != (row,):
                raise StorageError("what was written is not what is read.", table=str(name))
        finally:
            lake.drop_table(name)
    finally:
        if is_new and lake.has_namespace(name):
            lake.drop_namespace(name)


def _trial_name(config: Config) -> TableName:
    """A table that does not exist, where the first table of a run would be created."""
    first = ledger_name(config)
    if config.source is None:
        first = parse_table_name(config.tables[0].mirror, catalog=config.catalog.name)
    return replace(first, table=f"frazil_check_{SystemRandomness().token(_TOKEN_BYTES).hex()}")
