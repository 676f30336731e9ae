"""Rejected records of a batch become dead letters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.errors import ConfigError
from frazil.ledger.dead_letters import DeadLetterTable
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.clients.iceberg.lake import Lake
    from frazil.hooks import Clock
    from frazil.ingest.settings import IngestSettings
    from frazil.model.records.rejected_record import RejectedRecord
    from frazil.sources.protocol import Batch, Source

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RejectedRecords:
    """Keeps the rejected records of one source; lives on the driver."""

    lake: Lake
    source: Source
    settings: IngestSettings
    clock: Clock

    @property
    def most_bytes(self) -> int:
        """How much a batch may bring."""
        return self.settings.most_rejected_bytes

    def keep(
        self, batch: Batch, records: Sequence[RejectedRecord], *, name: str
    ) -> Mapping[tuple[str, str], int]:
        """Keep those of the batch with this name before its tables commit.

        Counts by table and reason.
        """
        if batch.keep_rejected is not None:
            batch.keep_rejected(records)
            kept = records
        else:
            kept = self._open().keep(
                records,
                pipeline=self.settings.pipeline,
                source=self.source.identity,
                batch=name,
                at=self.clock.now(),
            )
        counts = Counter((each.table, each.reason.value) for each in kept)
        for (table, reason), count in counts.items():
            _log.warning("records rejected", table=table, reason=reason, records=count)
        return counts

    def _open(self) -> DeadLetterTable:
        # A source that never rejects anything gets no such table.
        settings = self.settings
        if settings.dead_letters is None:
            message = "records were rejected, and no table is named for dead letters."
            raise ConfigError(message, next_step="name one under dead_letters")
        return DeadLetterTable.ensure(
            self.lake, settings.dead_letters, format_version=settings.format_version
        )
