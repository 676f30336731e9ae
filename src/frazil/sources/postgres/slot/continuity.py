"""Whether a server can still give what follows a position: its identity, timeline and slot; pure.

A server that begins later than we ended has lost changes, and would not say so: it starts a stream
wherever the slot is.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from frazil.errors import (
    ConfigError,
    PositionLostError,
    SourceReplacedError,
    SourceUnavailableError,
)
from frazil.model.postgres.lsn import format_lsn, parse_lsn
from frazil.sources.postgres.checks.server_checks import PLUGIN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from frazil.clients.postgres.replication import SystemIdentity, TimelineSwitch
    from frazil.model.marker import Marker
    from frazil.model.postgres.facts import PublicationFacts, SlotFacts
    from frazil.sources.postgres.settings import PostgresSettings

_RESYNC = "frazil resync --all, or set source.on_slot_lost: resync"
_RIGHT_SERVER = "point source.dsn at the right server, or frazil resync --all"


def source_identity(server: SystemIdentity, slot: str) -> str:
    """What positions count in."""
    return f"postgres/{server.system_identifier}/{server.database}/{slot}"


def check_source(server: SystemIdentity, slot: str, counted_in: str) -> None:
    """Refuse another server, database or slot than the one that positions were counted in."""
    found = source_identity(server, slot)
    if found != counted_in:
        message = f"positions were counted in {counted_in}, and this is {found}."
        raise SourceReplacedError(message, next_step=_RIGHT_SERVER)


def as_observed(server: SystemIdentity, position: int | None) -> SystemIdentity:
    """The server as of the look at its tables: a standby may have replayed more since."""
    if position is None or not server.is_standby:
        return server
    return replace(server, log_end=min(server.log_end, position))


def check_timeline(
    server: SystemIdentity,
    switches: Iterable[TimelineSwitch],
    *,
    generation: int,
    position: int,
) -> None:
    """Refuse a server whose history left ours before the position we have reached.

    ``generation`` is the timeline on which that position was counted. A standby that is behind may
    still come there, also after a restart or a fail-over of its primary: SourceUnavailableError.
    What it has left for good is another history there too.
    """
    _check_switches(switches, generation=generation, position=position)
    if server.is_standby and (server.timeline < generation or server.log_end < position):
        message = (
            f"the standby has replayed up to {format_lsn(server.log_end)} on timeline "
            f"{server.timeline}, and captured is what came before {format_lsn(position)} on "
            f"timeline {generation}: it is waited for."
        )
        raise SourceUnavailableError(
            message,
            position=format_lsn(position),
            next_step="if it stays behind, see in pg_stat_wal_receiver whether it follows its "
            "primary, and whether replay is paused; a server that was restored has to be promoted",
        )
    if server.timeline < generation:
        message = (
            f"the server is on timeline {server.timeline}, and positions were counted on "
            f"{generation}: it is an older server, or was restored."
        )
        raise SourceReplacedError(message, position=format_lsn(position))
    if server.log_end < position:
        # Restored servers may count their timelines as others did.
        message = (
            f"the server's log ends at {format_lsn(server.log_end)}, before changes that were "
            "captured: it was restored."
        )
        raise SourceReplacedError(message, position=format_lsn(position))


def _check_switches(switches: Iterable[TimelineSwitch], *, generation: int, position: int) -> None:
    for switch in switches:
        if switch.timeline >= generation and switch.position < position:
            message = (
                f"the server left timeline {switch.timeline} at {format_lsn(switch.position)}, "
                "before changes that were captured: what it has now is another history."
            )
            raise SourceReplacedError(message, position=format_lsn(position))


def check_publication(publication: PublicationFacts | None, *, name: str) -> None:
    """Refuse to go on without it: what it would have sent since it went is lost."""
    if publication is None:
        message = f"the publication {name} does not exist any more, so that nothing is sent."
        raise PositionLostError(message, next_step=_RESYNC)


def check_kind(slot: SlotFacts, *, database: str) -> None:
    """Refuse a slot that cannot be ours: ConfigError."""
    if slot.plugin != PLUGIN or slot.database != database:
        message = f"the slot {slot.name} is not a slot of {PLUGIN} in the database {database}."
        raise ConfigError(message, next_step="choose another source.slot")


def check_slot(slot: SlotFacts | None, *, name: str, database: str) -> SlotFacts:
    """The slot if it can be read from; PositionLostError if there is none, or none any more."""
    if slot is None:
        message = f"the slot {name} does not exist any more, and with it what it kept."
        raise PositionLostError(message, next_step=_RESYNC)
    check_kind(slot, database=database)
    if slot.is_lost or slot.confirmed_flush is None:
        why = slot.invalidation_reason or "its log was removed"
        message = f"the server has invalidated the slot {name}: {why}."
        raise PositionLostError(message, next_step=_RESYNC)
    return slot


def check_continuity(slot: SlotFacts, position: int) -> None:
    """Refuse a slot that is ahead of us: what lies between was confirmed by another process."""
    confirmed = slot.confirmed_flush or 0
    if confirmed > position:
        message = (
            f"the slot {slot.name} was confirmed up to {format_lsn(confirmed)}, and captured is "
            f"only what came before {format_lsn(position)}: the changes between them are lost."
        )
        raise PositionLostError(message, position=format_lsn(position), next_step=_RESYNC)


class SlotStep(StrEnum):
    """What becomes of the slot before anything is captured."""

    KEEP = "keep"
    CREATE = "create"
    REPLACE = "replace"


def plan_slot(
    settings: PostgresSettings,
    since: Marker | None,
    *,
    reached: int,
    server: SystemIdentity,
    switches: Iterable[TimelineSwitch],
    publication: PublicationFacts | None,
    slot: SlotFacts | None,
) -> SlotStep:
    """Refuse a server that cannot give what follows this marker, for any of the reasons above.

    Without a marker it may begin anywhere. ``reached`` is how far anything was captured: a table
    may be ahead of the marker while another one is paused or being copied, and a server without
    what that table has is another history.
    """
    if since is not None:
        position = parse_lsn(str(since.position))
        check_source(server, settings.slot, since.source)
        check_timeline(server, switches, generation=since.epoch, position=max(position, reached))
        check_publication(publication, name=settings.publication)
        found = check_slot(slot, name=settings.slot, database=server.database)
        check_continuity(found, position)
        return SlotStep.KEEP
    if slot is None:
        return SlotStep.CREATE
    check_kind(slot, database=server.database)
    # What it keeps was written before there was a publication, if it keeps any.
    is_useless = slot.is_lost or publication is None
    return SlotStep.REPLACE if is_useless else SlotStep.KEEP
