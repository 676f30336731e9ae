"""What the checks compare a server with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Where frazil keeps tables of its own in a database that is also a buffer.
OWN_SCHEMAS = ("frazil",)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightSettings:
    """What the configuration wants of the server.

    ``keys`` has the columns configured as a table's key, by ``schema.table``, where they are not
    its primary key.
    """

    slot: str
    publication: str
    creates_publication: bool
    held_wal_bytes: int
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    own_schemas: tuple[str, ...] = OWN_SCHEMAS
