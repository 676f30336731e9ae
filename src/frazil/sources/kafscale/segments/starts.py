"""Where partitions continue: with their table, where the ledger says, or after another writer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.sources.kafscale.segments.object_keys import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from frazil.model.marker import Position
    from frazil.sources.kafscale.segments.discovery import SegmentListing
    from frazil.sources.protocol import TableProgress


def parse_offsets(position: Position | None) -> dict[TopicPartition, int]:
    """A position by its partitions."""
    if isinstance(position, str):
        message = "positions of this source are offsets by partition"
        raise TypeError(message)
    return {TopicPartition.parse(name): at for name, at in (position or {}).items()}


def name_offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, int]:
    """What ``parse_offsets`` reads."""
    return {str(each): at for each, at in offsets.items()}


def continue_at(partition: TopicPartition, table: TableProgress, recorded: int) -> int:
    """Where a partition continues: with its table, or where it was said to begin."""
    reached = parse_offsets(table.position).get(partition, recorded)
    # Another writer's rows say how far it came, and not what it left out on purpose.
    return reached if table.shape else max(reached, recorded)


@dataclass(frozen=True, slots=True)
class Beginnings:
    """Finds where partitions begin that the ledger says nothing of.

    ``processed`` gives the last offset of each that any writer says it has processed.
    """

    listing: SegmentListing
    processed: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]]

    def find(
        self,
        unknown: Collection[TopicPartition],
        partitions: Collection[TopicPartition],
        recorded: Mapping[TopicPartition, int],
        tables: Mapping[str, TableProgress],
    ) -> dict[TopicPartition, int]:
        """Of the ``unknown`` ones, and of tables that another writer filled.

        Of these, after their last row and after what that writer said it had processed; all their
        partitions at once, because rows of ours hide where those end.
        """
        left = {name for name, each in tables.items() if each.position and not each.shape}
        rows = {name: parse_offsets(tables[name].position) for name in left}
        # Also those that brokers do not serve at the moment.
        known = {each for each in partitions if each.topic in left}.union(*rows.values())
        taken_over = sorted(known - recorded.keys())
        processed = self.processed(taken_over)
        begun = {}
        for partition in taken_over:
            if begin := max(rows[partition.topic].get(partition, 0), processed[partition] + 1):
                begun[partition] = begin
        for partition in unknown:
            if partition not in begun:
                begun[partition] = self.listing.first_offset(partition)
        return begun
