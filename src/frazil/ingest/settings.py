"""What the configuration wants of an ingest, as values it can work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from frazil.changelog.layout import DEFAULT_PREFIX
from frazil.clients.iceberg.lake import NEWEST_FORMAT
from frazil.model.policy import Evolution, OnDrop, OnWiden

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.errors import FrazilError
    from frazil.model.table_name import TableName
    from frazil.sources.protocol import Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSettings:
    """One table's changelog: its name, its layout and how it follows changes.

    Without ``partition_by`` it is partitioned as the source wants it.
    """

    changelog: TableName
    prefix: str = DEFAULT_PREFIX
    partition_by: tuple[str, ...] | None = None
    on_drop: OnDrop = OnDrop.KEEP
    evolution: Evolution = Evolution.PERMISSIVE
    on_widen: OnWiden = OnWiden.VERIFY
    format_version: int = NEWEST_FORMAT


class Captures(Protocol):
    """The settings of every table of the source."""

    def __call__(self, table: str) -> CaptureSettings:
        """The settings of this one; raises ConfigError for a name that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSettings:
    """The pipeline's name, the bounds of a batch, and the limits of retries.

    ``held_bytes`` is what the source may keep for a paused table. With ``resyncs_lost`` a source
    that lost our position has every table read again. A table is tried ``defect_attempts`` times
    before something unforeseen pauses it, and with an error that ``may_pass`` as often as needed.
    ``dead_letters`` is the table for rejected records, and ``most_rejected_bytes`` how much of them
    one batch may have; it is made with ``format_version``.
    """

    pipeline: str
    limit: Limit
    held_bytes: int
    may_pass: Callable[[FrazilError], bool]
    resyncs_lost: bool = False
    defect_attempts: int = 3
    dead_letters: TableName | None = None
    format_version: int = NEWEST_FORMAT
    # The driver holds them in memory. More than this is hardly what its operator wants to sort.
    most_rejected_bytes: int = 64 * 2**20
