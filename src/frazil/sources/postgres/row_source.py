"""Rows of Postgres tables in a snapshot, and the changes that the slot keeps of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.clients.postgres.catalog_facts import load_slot
from frazil.clients.postgres.connecting import connect
from frazil.errors import SlotBusyError
from frazil.hooks import SystemRandomness
from frazil.model.postgres.lsn import format_lsn, parse_lsn
from frazil.sources.postgres.copy.round import CopyRound, copy_slot_name
from frazil.sources.postgres.slot.continuity import source_identity
from frazil.sources.postgres.stream.pending_changes import load_pending
from frazil.sources.postgres.tables.identity import identity_differences, relation_oid
from frazil.sources.row_source import PendingChanges

if TYPE_CHECKING:
    from frazil.hooks import Clock
    from frazil.model.marker import Position
    from frazil.sources.postgres.settings import PostgresSettings

# The server reads this much of its log in seconds; beyond that, an ingest has to do it.
MOST_PENDING_BYTES = 256 * 2**20
_PURPOSE = "verify"


class PostgresRows:
    """Tables of one database."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings

    def open(self, *, clock: Clock) -> PostgresSnapshot:
        """A snapshot that a temporary slot exports."""
        return PostgresSnapshot(self._settings, clock=clock)

    def parse(self, position: Position) -> int:
        """The LSN."""
        return parse_lsn(str(position))

    def format(self, position: int) -> str:
        """The LSN as the server prints it."""
        return format_lsn(position)

    def explain_identity_change(self, before: str, now: str) -> tuple[str, ...]:
        """What the server never announces."""
        return identity_differences(before, now)

    def is_read(self) -> bool:
        """Whether the slot is active."""
        with connect(self._settings.dsn, purpose=_PURPOSE) as session:
            slot = load_slot(session, self._settings.slot)
        return slot is not None and slot.is_active

    def load_pending(self, identity: str, until: int) -> PendingChanges:
        """What the slot keeps of this table; unknown while the slot is read or keeps too much."""
        settings = self._settings
        with connect(settings.dsn, purpose=_PURPOSE) as session:
            slot = load_slot(session, settings.slot)
            if slot is None or slot.is_active or slot.confirmed_flush is None:
                return PendingChanges(is_read=slot is not None and slot.is_active)
            if until - slot.confirmed_flush > MOST_PENDING_BYTES:
                return PendingChanges(is_read=False)
            try:
                pending = load_pending(
                    session, slot=slot.name, publication=settings.publication, until=until
                )
            except SlotBusyError:
                return PendingChanges(is_read=True)
        oid = relation_oid(identity)
        return PendingChanges(is_read=False, newest=None if oid is None else pending.get(oid, -1))


class PostgresSnapshot(CopyRound):
    """A snapshot to compare with, in a temporary slot of its own."""

    def __init__(self, settings: PostgresSettings, *, clock: Clock) -> None:
        slot = copy_slot_name(settings.slot, SystemRandomness())
        super().__init__(settings, slot=slot, clock=clock)

    @property
    def identity(self) -> str:
        """The server, the database and the pipeline's slot."""
        return source_identity(self.server, self._settings.slot)
