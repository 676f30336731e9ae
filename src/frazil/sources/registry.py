"""The kinds of source by name. A kind's package is imported when a configuration names it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from frazil.errors import ConfigError

if TYPE_CHECKING:
    from frazil.config import Config
    from frazil.sources.kind import SourceKind, TableSettingsOf

KINDS = {
    "buffer": "frazil.sources.buffer.kind:BufferKind",
    "kafscale": "frazil.sources.kafscale.kind:KafscaleKind",
    "postgres": "frazil.sources.postgres.kind:PostgresKind",
}
# The modules that splits and their readers are unpickled from: Spark's workers start with them.
TASK_MODULES = (
    "frazil.sources.buffer.reading.reader",
    "frazil.sources.kafscale.reading.reader",
    "frazil.sources.postgres.copy.reader",
    "frazil.sources.postgres.stream.reader",
)


def find_kind(config: Config, tables: TableSettingsOf) -> SourceKind:
    """The source of this configuration; ConfigError if it has none."""
    if config.source is None:
        raise ConfigError(
            "this configuration has no source.",
            next_step="add source: {kind: postgres, dsn: …}, or name another document with -c",
        )
    module, _, name = KINDS[config.source.kind].partition(":")
    kind: type[SourceKind] = getattr(import_module(module), name)
    return kind(config, tables)
