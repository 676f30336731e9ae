"""The settings of one merge: the two tables, the columns by role, and the options."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.model.policy import Deletes, Evolution, OnDrop, Order

if TYPE_CHECKING:
    from frazil.model.table_name import TableName

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """How data files of a new mirror are written."""

    target_file_bytes: int = 128 * _MIB
    compression: str = "zstd"
    # Reading back a row for its unchanged columns reads its row group.
    row_group_rows: int = 131_072


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSettings:
    """The key index; ``cache_dir`` is a directory of each machine that runs tasks."""

    young_entries: int = 65_536
    max_runs: int = 8
    # What one merge may merge of the runs; larger ones are merged in the background.
    upkeep_entries: int = 524_288
    cache_dir: Path = Path("cache")
    cache_bytes: int = 8 * 1024 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSettings:
    """One changelog and its mirror.

    Columns are named as in the changelog. ``unchanged`` and ``previous_key`` are used when the
    changelog has columns of that name, and ``bookkeeping`` names further columns that are not the
    source's and do not reach the mirror.
    """

    changelog: TableName
    mirror: TableName
    key: tuple[str, ...]
    sequence: str = "cdc_sequence_number"
    operation: str = "cdc_operation"
    unchanged: str = "cdc_unchanged"
    previous_key: str = "cdc_previous_key"
    bookkeeping: tuple[str, ...] = ("cdc_timestamp", "cdc_lsn")
    pipeline: str = "frazil"
    order: Order = Order.APPEND
    tombstones: timedelta = timedelta(days=7)
    deletes: Deletes = Deletes.APPLY
    on_drop: OnDrop = OnDrop.KEEP
    evolution: Evolution = Evolution.PERMISSIVE
    format_version: int = 3
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    max_rows: int = 5_000_000
    write: WriteSettings = field(default_factory=WriteSettings)
    index: IndexSettings = field(default_factory=IndexSettings)

    @property
    def remembers_deletes(self) -> bool:
        """Whether deleted keys are remembered, because an older change may still arrive."""
        return self.order is Order.PER_KEY and self.deletes is not Deletes.IGNORE
