"""The commands of the replication protocol as text, for every version of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.model.postgres.facts import VERSION_STEP
from frazil.model.postgres.lsn import format_lsn
from frazil.model.postgres.names import quote_identifier, quote_literal

if TYPE_CHECKING:
    from collections.abc import Sequence

PLUGIN = "pgoutput"
# Large transactions may be sent in parts from here on; another option requests that.
PROTOCOL = 2

IDENTIFY_SYSTEM = "IDENTIFY_SYSTEM"

_OPTIONS_IN_BRACKETS = 15 * VERSION_STEP
_FAILOVER_SLOTS = 17 * VERSION_STEP


def create_slot_command(name: str, *, temporary: bool, failover: bool, server_version: int) -> str:
    """Create a slot that exports its snapshot; ``failover`` where the server has such slots."""
    kind = " TEMPORARY" if temporary else ""
    command = f"CREATE_REPLICATION_SLOT {quote_identifier(name)}{kind} LOGICAL {PLUGIN}"
    if server_version < _OPTIONS_IN_BRACKETS:
        return f"{command} EXPORT_SNAPSHOT"
    # A temporary slot ends with its connection and cannot fail over.
    survives = failover and not temporary and server_version >= _FAILOVER_SLOTS
    options = ["SNAPSHOT 'export'", *(["FAILOVER true"] if survives else [])]
    return f"{command} ({', '.join(options)})"


def drop_slot_command(name: str, *, wait: bool) -> str:
    """Drop a slot; ``wait`` until its reader has gone instead of being refused."""
    return f"DROP_REPLICATION_SLOT {quote_identifier(name)}{' WAIT' if wait else ''}"


def timeline_history_command(timeline: int) -> str:
    """Request the history file of a timeline."""
    return f"TIMELINE_HISTORY {timeline}"


def start_command(slot: str, *, after: int, publications: Sequence[str]) -> str:
    """Stream the slot from a position, or from its own where that is later."""
    # The value is a list of identifiers, which the server takes apart itself.
    names = ",".join(map(quote_identifier, publications))
    options = {
        "proto_version": str(PROTOCOL),
        "publication_names": names,
        "messages": "true",
    }
    listed = ", ".join(f"{name} {quote_literal(value)}" for name, value in options.items())
    return f"START_REPLICATION SLOT {quote_identifier(slot)} LOGICAL {format_lsn(after)} ({listed})"
