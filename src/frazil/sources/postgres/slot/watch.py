"""The state of the server and its slot, queried repeatedly; and a slot that no process reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil import errors
from frazil.clients.postgres.catalog_facts import load_position, load_slot
from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.dsn import SessionAccess

if TYPE_CHECKING:
    from frazil.clients.postgres.session import Session
    from frazil.model.postgres.facts import SlotFacts
    from frazil.sources.postgres.settings import PostgresSettings

# Never back, and not where it could not be read from either: that is reported when it is read.
_ADVANCE = """
    select (pg_replication_slot_advance(
        slot_name, least(confirmed_flush_lsn + %(stride)s::numeric, %(position)s::pg_lsn)
    )).end_lsn::text
    from pg_replication_slots
    where slot_name = %(slot)s and wal_status <> 'lost'
        and confirmed_flush_lsn < %(position)s::pg_lsn
"""
# The server reads all the log in between, and may wait for its standbys; a statement that is
# cancelled has not advanced the slot at all.
_PATIENCE = "set statement_timeout = '60s'"
_STRIDE_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class SlotObservation:
    """The end of the server's log, and the slot; None while there is none."""

    newest: int
    slot: SlotFacts | None


def advance_slot(settings: PostgresSettings, position: str) -> None:
    """Let the server forget what is before this position, while no process reads the slot.

    What takes too long is cancelled, and is SourceUnavailableError: a call goes on where the one
    before it ended.
    """
    parameters = {"slot": settings.slot, "position": position, "stride": _STRIDE_BYTES}
    doing = f"advancing the slot {settings.slot}"
    with connect(settings.dsn, purpose="slot", access=SessionAccess.READ_WRITE) as session:
        session.execute(_PATIENCE, {}, doing=doing)
        before: list[str] = []
        ended = [""]
        while ended and ended != before:
            before, ended = ended, session.load(str, _ADVANCE, parameters, doing=doing)


class SlotWatch:
    """Used by one thread; a connection that is lost is opened again by the next call."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._session: Session | None = None

    def observe(self) -> SlotObservation:
        """Query the server; raises SourceUnavailableError and what else connecting raises."""
        if self._session is None:
            self._session = connect(self._settings.dsn, purpose="watch")
        try:
            # The log first: what the slot has by then cannot be further.
            newest = load_position(self._session)
            return SlotObservation(newest, load_slot(self._session, self._settings.slot))
        except errors.FrazilError:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
