"""What the configuration wants of a Postgres source, as values it can work with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from frazil.clients.catalog_settings import catalog_properties
from frazil.model.schema.types import parse_scalar
from frazil.sources.postgres.spool_files import SpoolFiles
from frazil.sources.postgres.tables.description import TableOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.clients.postgres.dsn import SecretText
    from frazil.config import Config, TableSettings
    from frazil.config.models.postgres_source import PostgresSection
    from frazil.sources.kind import TableSettingsOf

    # The options of a table, by its name at the source.
    OptionsOf = Callable[[str], TableOptions]


@dataclass(frozen=True, kw_only=True)
class PostgresSettings:
    """The connection, the names at the server, the spool and the bounds."""

    dsn: SecretText = field(repr=False)
    slot: str
    publication: str
    creates_publication: bool
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    spool: SpoolFiles
    spool_bytes: int
    heartbeat_seconds: float
    copy_connections: int
    options: OptionsOf


def postgres_settings(
    config: Config, section: PostgresSection, tables: TableSettingsOf
) -> PostgresSettings:
    """What the configuration says about the source."""
    folder = section.spool.dir
    return PostgresSettings(
        dsn=section.dsn,
        slot=section.slot,
        publication=section.publication.name,
        creates_publication=section.publication.create,
        include=section.tables,
        exclude=section.exclude,
        # Pipelines may share a folder; the files of another pipeline must not be removed.
        spool=SpoolFiles(
            str(PurePosixPath(folder) / config.pipeline)
            if "://" not in str(folder)
            else f"{folder}/{config.pipeline}",
            tuple(sorted(catalog_properties(config.catalog, config.storage).items())),
        ),
        spool_bytes=section.spool.max_bytes,
        heartbeat_seconds=section.heartbeat.total_seconds(),
        copy_connections=section.initial_copy.connections,
        options=lambda table: table_options(tables(table)),
    )


def table_options(settings: TableSettings) -> TableOptions:
    """What the configuration says about the columns of a table."""
    columns = settings.columns
    return TableOptions(
        key=settings.key,
        declared={
            name: parse_scalar(each.type) for name, each in columns.items() if each.type is not None
        },
        on_unrepresentable=settings.mirror.on_unrepresentable,
        per_column={
            name: each.on_unrepresentable
            for name, each in columns.items()
            if each.on_unrepresentable is not None
        },
    )
