"""The health of a Postgres source: its slot, and the end of the server's log."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from frazil.errors import FrazilError
from frazil.model import humanize
from frazil.model.postgres.lsn import format_lsn
from frazil.sources.health import HealthFacts, HealthLine, SourceHealth
from frazil.sources.postgres.slot.continuity import check_slot
from frazil.sources.postgres.slot.watch import SlotWatch

if TYPE_CHECKING:
    from frazil.model.postgres.facts import SlotFacts
    from frazil.sources.postgres.settings import PostgresSettings
    from frazil.sources.postgres.slot.watch import SlotObservation

# What the server calls a slot whose log is there for as long as it is needed.
_SAFE: Final = frozenset({"reserved", "extended"})


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
        return describe_health(self._watch.observe(), slot=self._slot, stops_lost=self._stops_lost)

    def close(self) -> None:
        """End the connection."""
        self._watch.close()


def describe_health(found: SlotObservation, *, slot: str, stops_lost: bool = True) -> SourceHealth:
    """What the slot and the log mean; pure."""
    slot_health = None if found.slot is None else _slot_health(found.slot, found.newest)
    facts = None if slot_health is None else show_slot(slot_health)
    problem = None
    if stops_lost:
        database = "" if found.slot is None else found.slot.database or ""
        try:
            check_slot(found.slot, name=slot, database=database)
        except FrazilError as error:
            problem = error
    return SourceHealth(newest=found.newest, facts=facts, problem=problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotHealth:
    """The replication slot as the server shows it.

    ``safe_bytes`` is how much log may still be written before it is in danger; None: no limit.
    """

    name: str
    is_active: bool
    state: str
    confirmed: str | None
    retained_bytes: int
    safe_bytes: int | None


def _slot_health(slot: SlotFacts, newest: int) -> SlotHealth:
    confirmed = slot.confirmed_flush
    return SlotHealth(
        name=slot.name,
        is_active=slot.is_active,
        state="lost" if slot.is_lost else str(slot.wal_status or "unknown"),
        confirmed=None if confirmed is None else format_lsn(confirmed),
        retained_bytes=max(0, newest - (slot.restart or newest)),
        safe_bytes=slot.safe_wal_bytes,
    )


def show_slot(slot: SlotHealth) -> HealthFacts:
    """The slot for programs and for people; pure."""
    activity = "active" if slot.is_active else "not active"
    kept = humanize.size(slot.retained_bytes)
    safe = (
        "no limit" if slot.safe_bytes is None else f"safe for {humanize.size(slot.safe_bytes)} more"
    )
    lines = [
        HealthLine(label="Slot", text=slot.name),
        HealthLine(
            label="Its state", text=f"{slot.state}, {activity}", is_well=slot.state in _SAFE
        ),
        HealthLine(label="Log kept for it", text=kept, note=safe),
    ]
    if slot.confirmed is not None:
        lines.append(HealthLine(label="Confirmed", text=slot.confirmed))
    return HealthFacts(
        details={"slot": asdict(slot)},
        lines=tuple(lines),
        summary=f"slot {slot.name} {slot.state}, {activity}, keeps {kept}, {safe}",
    )
