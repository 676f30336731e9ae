"""A replication stream that is open, with its spool and its planner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.sources.postgres.stream.spool import Taken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.clients.postgres.replication_stream import ReplicationStream
    from frazil.sources.postgres.stream.planner import StreamPlanner
    from frazil.sources.postgres.stream.segment import Segment
    from frazil.sources.postgres.stream.spool import StreamSpool


class OpenStream:
    """A running stream with its spool and its planner."""

    def __init__(
        self,
        stream: ReplicationStream,
        spool: StreamSpool,
        planner: StreamPlanner,
        *,
        after: int,
        backend: int,
    ) -> None:
        self.stream = stream
        self.backend = backend
        self.spool = spool
        self.planner = planner
        # Those whose changes were never left out of it, with their numbers at the source.
        self.tables: Mapping[str, int | None] = {}
        self.taken: tuple[Segment, ...] = ()
        # Taken from the spool and left for the next batch.
        self.rest = Taken((), None)
        self.planned_to = after

    def release(self) -> None:
        """Let the spool remove the segments of the last batch."""
        taken, self.taken = self.taken, ()
        if taken:
            self.spool.release(taken)
