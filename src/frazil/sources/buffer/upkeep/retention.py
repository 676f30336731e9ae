"""Processed events and dead letters that are old enough are deleted, in portions.

Every portion is a transaction of its own, and takes only rows that no other session has: several
processes share the work. Nothing that is pending or belongs to a batch is touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from frazil.sources.buffer.dead_letters import settle_letters
from frazil.sources.buffer.own_tables import ensure_own_tables
from frazil.sources.buffer.upkeep.chore_session import ChoreSession
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import timedelta

    from frazil.clients.postgres.dsn import SecretText
    from frazil.clients.postgres.session import Session
    from frazil.sources.buffer.relations import BufferRelations

_log = get_logger(__name__)

# A transaction of a tenth of a second or so, which no one has to wait for.
PORTION: Final = 5000
_EVENTS: Final = """
    delete from {events} where id in (
        select event.id from {events} as event
        where event.processed_at < now() - %(retention)s::interval
            and (%(sources)s::text[] = '{{}}' or event.source_id = any(%(sources)s))
            and not {claimed} @> event.id
        order by event.processed_at limit %(portion)s
        for update skip locked
    )
"""
# One whose event is on its way into its table is settled when it has arrived.
_LETTERS: Final = """
    delete from {letters} where id in (
        select letter.id from {letters} as letter
        where letter.expires_at < now()
            and (%(sources)s::text[] = '{{}}' or letter.source_id = any(%(sources)s))
            and not exists (
                select from {events} as event
                where event.id = letter.original_event_id and event.processed_at is null
            )
        order by letter.expires_at limit %(portion)s
        for update skip locked
    )
"""


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """How many rows were deleted."""

    events: int
    letters: int


def clean_up(
    session: Session,
    relations: BufferRelations,
    retention: timedelta,
    source_ids: Collection[str] = (),
    *,
    portion: int = PORTION,
) -> CleanupReport:
    """Delete all that is old enough now."""
    settle_letters(session, relations)
    parameters = {"retention": retention, "sources": list(source_ids), "portion": portion}
    delete = partial(_delete, session, relations, parameters)
    letters = delete(_LETTERS) if relations.has_letters else 0
    return CleanupReport(events=delete(_EVENTS), letters=letters)


def _delete(
    session: Session, relations: BufferRelations, parameters: dict[str, object], statement: str
) -> int:
    named = statement.format(
        events=relations.events, letters=relations.letters, claimed=relations.claimed
    )
    deleted = 0
    while count := session.execute(named, parameters, doing="deleting what is processed"):
        deleted += count
    return deleted


class RetentionCleanup:
    """The cleanup as a chore."""

    name = "retention"

    def __init__(
        self,
        dsn: SecretText,
        relations: BufferRelations,
        *,
        retention: timedelta,
        interval: timedelta,
        source_ids: Collection[str] = (),
    ) -> None:
        self._relations = relations
        self._retention = retention
        self._source_ids = tuple(source_ids)
        self.seconds = interval.total_seconds()
        self._session = ChoreSession(
            dsn,
            purpose="cleanup",
            prepare=lambda session: ensure_own_tables(session, relations),
        )

    def run(self) -> None:
        """Delete what is old enough, and say how much that was."""
        report = self._session.use(
            lambda session: clean_up(session, self._relations, self._retention, self._source_ids)
        )
        # Until the next run, for an hour by default, nothing uses it.
        self._session.close()
        if report.events or report.letters:
            _log.info("old events deleted", events=report.events, dead_letters=report.letters)

    def close(self) -> None:
        """End the session."""
        self._session.close()
