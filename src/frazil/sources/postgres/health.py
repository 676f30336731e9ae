"""The health of a Postgres source: its slot, and the end of the server's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import FrazilError
from frazil.model.postgres.lsn import format_lsn
from frazil.sources.health import SourceHealth
from frazil.sources.postgres.slot.continuity import check_slot
from frazil.sources.postgres.slot.watch import SlotWatch

if TYPE_CHECKING:
    from frazil.model.postgres.facts import SlotFacts
    from frazil.sources.health import Fact
    from frazil.sources.postgres.settings import PostgresSettings
    from frazil.sources.postgres.slot.watch import SlotLook


class PostgresHealth:
    """One connection; one that is lost is opened again by the next load.

    ``stops_lost`` says that an operator has to act when the slot is lost.
    """

    def __init__(self, settings: PostgresSettings, *, stops_lost: bool) -> None:
        self._watch = SlotWatch(settings)
        self._slot = settings.slot
        self._stops_lost = stops_lost

    def load(self) -> SourceHealth:
        """The health now."""
        return describe_health(self._watch.look(), slot=self._slot, stops_lost=self._stops_lost)

    def close(self) -> None:
        """End the connection."""
        self._watch.close()


def describe_health(found: SlotLook, *, slot: str, stops_lost: bool = True) -> SourceHealth:
    """What the slot and the log mean; pure."""
    details = {} if found.slot is None else {"slot": _slot_facts(found.slot, found.newest)}
    problem = None
    if stops_lost:
        database = "" if found.slot is None else found.slot.database or ""
        try:
            check_slot(found.slot, name=slot, database=database)
        except FrazilError as error:
            problem = error
    return SourceHealth(newest=found.newest, details=details, problem=problem)


def _slot_facts(slot: SlotFacts, newest: int) -> dict[str, Fact]:
    confirmed = slot.confirmed_flush
    return {
        "name": slot.name,
        "is_active": slot.is_active,
        "state": "lost" if slot.is_lost else str(slot.wal_status or "unknown"),
        "confirmed": None if confirmed is None else format_lsn(confirmed),
        "retained_bytes": max(0, newest - (slot.restart or newest)),
        "safe_bytes": slot.safe_wal_bytes,
    }
