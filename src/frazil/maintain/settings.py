"""What an operator wants of the upkeep of one table."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from frazil.model.policy import CompactionOrder

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactSettings:
    """When data files are rewritten; ``dead_ratio`` is a share of a file's rows."""

    small_bytes: int = 32 * _MIB
    min_files: int = 8
    dead_ratio: float = 0.2
    target_bytes: int = 128 * _MIB
    max_bytes: int = 2048 * _MIB
    order: CompactionOrder = CompactionOrder.KEEP


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepSettings:
    """Everything the policy needs; a ``retain`` of None is for ever.

    ``retain`` is for changelogs and the ledger, whose rows are removed by age.
    """

    enabled: bool = True
    compact: CompactSettings | None = field(default_factory=CompactSettings)
    keep_snapshots: timedelta = timedelta(hours=24)
    min_snapshots: int = 10
    max_manifests: int = 200
    retain: timedelta | None = None
    orphan_age: timedelta = timedelta(days=3)
    orphan_interval: timedelta = timedelta(days=1)

    @property
    def small_bytes(self) -> int:
        """Below which a file is small, whether it is compacted or not."""
        return (self.compact or CompactSettings()).small_bytes
