"""What the configuration wants of a Postgres source, as values it can work with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from frazil.clients.postgres.dsn import SecretText
    from frazil.sources.postgres.spool_files import SpoolFiles
    from frazil.sources.postgres.tables.description import TableOptions


class OptionsOf(Protocol):
    """The options of every table."""

    def __call__(self, table: str) -> TableOptions:
        """The options of a table, by its name at the source."""


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
