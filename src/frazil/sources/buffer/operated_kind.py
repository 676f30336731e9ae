"""What the buffer offers next to its events: checks, health, chores, dead letters, teardown."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.dsn import SessionAccess
from frazil.config.models.buffer_source import BufferSection
from frazil.sources.buffer.artifacts import open_teardown
from frazil.sources.buffer.checks.source_check import check_readiness, check_source
from frazil.sources.buffer.dead_letters import BufferLetterStore
from frazil.sources.buffer.plan_facts import BufferPlanFacts
from frazil.sources.buffer.record_counts import BufferRecords
from frazil.sources.buffer.settings import buffer_settings
from frazil.sources.buffer.upkeep.backpressure import BackpressureMarks, Drained, WaterMarks
from frazil.sources.buffer.upkeep.health import BufferHealth
from frazil.sources.buffer.upkeep.retention import RetentionCleanup
from frazil.sources.kind import SourceKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from frazil.config import Config
    from frazil.sources.buffer.artifacts import BufferTeardown
    from frazil.sources.buffer.settings import BufferSettings
    from frazil.sources.chores import Chore
    from frazil.sources.findings import Findings
    from frazil.sources.kind import TableSettingsOf


class OperatedBuffer(SourceKind):
    """A buffer for those who operate it; who drains it adds the events."""

    def __init__(self, config: Config, tables: TableSettingsOf) -> None:
        super().__init__(config, tables)
        if not isinstance(config.source, BufferSection):
            raise TypeError(config.source)
        self._section = config.source

    @cached_property
    def settings(self) -> BufferSettings:
        """What the configuration says."""
        return buffer_settings(self.config, self._section, self.tables)

    def watch(self) -> BufferHealth:
        """What is pending, and since when."""
        return BufferHealth(self.settings)

    def chores(self) -> tuple[Chore, ...]:
        """The retention cleanup, and the marks for writers."""
        section, settings = self._section, self.settings
        cleanup = RetentionCleanup(
            settings.dsn,
            settings.relations,
            retention=section.retention,
            interval=section.cleanup,
            source_ids=settings.source_ids,
        )
        if not section.backpressure.enabled:
            return (cleanup,)
        marks = BackpressureMarks(
            settings.dsn,
            settings.relations,
            WaterMarks(section.backpressure.high, section.backpressure.low),
            pipeline=settings.pipeline,
            interval=section.backpressure.check,
            drained=Drained(settings.source_ids, settings.choice),
        )
        return cleanup, marks

    def check_readiness(self) -> Findings:
        """The server, the tables and the rights of the role."""
        return check_readiness(self.settings)

    def check(self) -> Findings:
        """The same, the indexes, the sources and the tables of their events."""
        return check_source(self.settings)

    def load_plan_facts(self) -> BufferPlanFacts:
        """What waits, by table, and which tables and columns are new."""
        return BufferPlanFacts(self.settings)

    def dead_letters(self) -> AbstractContextManager[BufferLetterStore]:
        """Those in the buffer's own table."""
        return self._open_letters()

    @contextmanager
    def _open_letters(self) -> Iterator[BufferLetterStore]:
        settings = self.settings
        access = SessionAccess.READ_WRITE
        with connect(settings.dsn, purpose="dead letters", access=access) as session:
            yield BufferLetterStore(session, settings.relations, settings.source_ids)

    def records(self) -> BufferRecords:
        """The ids of processed events."""
        return BufferRecords(self.settings)

    def open_teardown(self) -> AbstractContextManager[BufferTeardown]:
        """Our schema, or our rows in it while other pipelines use it."""
        return open_teardown(self.settings)
