"""Rewrites of a mirror's files that have not landed yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.maintain.compaction.compactor import Compactor
from frazil.maintain.compaction.sites import MirrorSite

if TYPE_CHECKING:
    from frazil.maintain.compaction.compactor import Rewrite, RewriteOptions
    from tests.support.lake.mirrored import Mirrored


@dataclass
class Compacted:
    """A mirror with some files, one of which has deleted rows, and a rewrite of all of them."""

    table: Mirrored
    rewrite: Rewrite

    @classmethod
    def begin(cls, table: Mirrored, options: RewriteOptions | None = None) -> Compacted:
        """Three merges, and the rewrite of what they wrote."""
        table.change_and_merge({key: f"first {key}" for key in range(8)})
        table.change_and_merge({key: f"second {key}" for key in range(6, 12)})
        table.change_and_merge({20: "third", 21: "third"})
        return cls(table, rewritten(table, options))

    @property
    def site(self) -> MirrorSite:
        """Where it lands."""
        return MirrorSite(self.table.spark, self.table.lake, self.table.settings)


def rewritten(table: Mirrored, options: RewriteOptions | None = None) -> Rewrite:
    """All files that the mirror has now."""
    head = table.head().id
    files = [each.location for each in table.mirror.table.load_live_files(head)]
    compactor = Compactor(table.spark, table.lake, table.settings.mirror, table.settings)
    rewrite = compactor.rewrite(files, options)
    assert rewrite is not None
    return rewrite
