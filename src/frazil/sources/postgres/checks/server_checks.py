"""What may be wrong with the server, our role there, and the slot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.model.humanize import size
from frazil.model.postgres.facts import WalStatus
from frazil.model.postgres.names import quote_identifier, quote_literal
from frazil.sources.findings import stops, warns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.model.postgres.facts import (
        PostgresFacts,
        RunningTransaction,
        ServerFacts,
        SlotFacts,
    )
    from frazil.sources.findings import Problem
    from frazil.sources.postgres.preflight_settings import PreflightSettings

OLDEST_MAJOR = 14
NEWEST_MAJOR = 18
PLUGIN = "pgoutput"
# One to stream, one for the snapshot of a copy.
CONNECTIONS_NEEDED = 2

_STANDBY_SLOTS_MAJOR = 16
# Below this, lags and times shown from two clocks are still read as what they are.
_CLOCK_TOLERANCE_SECONDS = 5
_GIBIBYTE = 2**30
# Of transactions younger than this a busy server always has some.
_YOUNG_SECONDS = 1.0
_MOST_NAMED = 5
_RELOAD = "select pg_reload_conf();"


def server_problems(facts: PostgresFacts, settings: PreflightSettings) -> Iterator[Problem]:
    """Everything about the server, the role and the slot."""
    server = facts.server
    yield from readiness_problems(facts)
    yield from _limits(server, settings)
    yield from _surroundings(server)
    yield from _transactions(facts)
    if facts.slot is not None:
        yield from _slot(facts.slot, server)


def readiness_problems(facts: PostgresFacts) -> Iterator[Problem]:
    """Whether changes can be read from this server by this role at all."""
    yield from _version(facts.server)
    yield from _standby(facts.server)
    yield from _role(facts.server)
    yield from _capacity(facts)


def is_usable(slot: SlotFacts, server: ServerFacts) -> bool:
    """Whether the slot is one that a pipeline on this database can read."""
    is_ours = slot.plugin == PLUGIN and slot.database == server.database
    return is_ours and not slot.is_lost and not slot.is_two_phase


def _version(server: ServerFacts) -> Iterator[Problem]:
    if server.major < OLDEST_MAJOR:
        yield stops(f"The server is PostgreSQL {server.major}; the oldest that works is 14.")
    if server.major > NEWEST_MAJOR:
        yield warns(f"The server is PostgreSQL {server.major}; frazil is tested up to 18.")
    if server.wal_level != "logical":
        yield stops(
            f"wal_level is {server.wal_level}, so changes cannot be read; after the change the "
            "server must be restarted.",
            "alter system set wal_level = 'logical';",
        )
    if server.encoding != "UTF8":
        yield from _encoding(server)


def _encoding(server: ServerFacts) -> Iterator[Problem]:
    if server.encoding == "SQL_ASCII":
        yield warns(
            "The database has the encoding SQL_ASCII, so text in it may not be UTF-8; a table with "
            "such a text stops."
        )


def _standby(server: ServerFacts) -> Iterator[Problem]:
    if not server.is_standby:
        return
    if server.major < _STANDBY_SLOTS_MAJOR:
        yield stops(
            f"The server is a standby, and PostgreSQL {server.major} streams changes from the "
            "primary only."
        )
        return
    yield warns(
        "The server is a standby: a new slot waits until the primary has logged its running "
        "transactions; on the primary, run:",
        "select pg_log_standby_snapshot();",
    )
    if not server.has_standby_feedback:
        yield warns(
            "hot_standby_feedback is off, so the primary may remove what a slot on this standby "
            "needs, and the slot is lost then.",
            "alter system set hot_standby_feedback = on;",
            _RELOAD,
        )


def _role(server: ServerFacts) -> Iterator[Problem]:
    role = server.role
    if not role.may_replicate:
        yield stops(
            f"The role {role.name} may not replicate.",
            f"alter role {quote_identifier(role.name)} replication;",
        )


def _capacity(facts: PostgresFacts) -> Iterator[Problem]:
    server = facts.server
    free_slots = server.max_slots - server.slots_used
    free_senders = server.max_senders - server.senders_used
    # Only the slot of a copy is missing where ours exists.
    needed_slots = CONNECTIONS_NEEDED - (facts.slot is not None)
    if free_slots < needed_slots:
        stopping = facts.slot is None and free_slots < 1
        yield (stops if stopping else warns)(
            f"{server.slots_used} of {server.max_slots} replication slots are taken; one to stream "
            "and one for a copy are needed. After the change the server must be restarted.",
            f"alter system set max_replication_slots = {server.max_slots + needed_slots};",
        )
    # Who streams now may be an earlier run of this very pipeline.
    if free_senders < CONNECTIONS_NEEDED:
        ours = facts.slot is not None and facts.slot.is_active
        yield (stops if free_senders < 1 and not ours else warns)(
            f"{server.senders_used} of {server.max_senders} replication connections are taken; one "
            "to stream and one for a copy are needed. After the change the server must be "
            "restarted.",
            f"alter system set max_wal_senders = {server.max_senders + CONNECTIONS_NEEDED};",
        )


def _limits(server: ServerFacts, settings: PreflightSettings) -> Iterator[Problem]:
    limit = server.slot_wal_limit_bytes
    pause_bytes = settings.held_wal_bytes
    if limit is None:
        yield warns(
            "max_slot_wal_keep_size is not set: while the pipeline is stopped, the log grows until "
            "the server's disk is full.",
            f"alter system set max_slot_wal_keep_size = '{_gibibytes(4 * pause_bytes)}GB';",
            _RELOAD,
        )
    elif limit < pause_bytes:
        yield warns(
            f"max_slot_wal_keep_size is {size(limit)}, less than the {size(pause_bytes)} that a "
            "paused table may keep by on_stopped_table.hold: the slot may be lost before that.",
            f"alter system set max_slot_wal_keep_size = '{_gibibytes(pause_bytes)}GB';",
            _RELOAD,
        )
    idle = server.idle_slot_limit_seconds
    if idle is not None:
        yield warns(
            f"idle_replication_slot_timeout is {idle} s: a pipeline that is stopped for longer "
            "loses its slot and every table needs a resync.",
            "alter system set idle_replication_slot_timeout = 0;",
            _RELOAD,
        )


def _surroundings(server: ServerFacts) -> Iterator[Problem]:
    if not server.uses_tls and not server.is_local:
        yield warns(
            "The connection is not encrypted, and the server is another machine: remove "
            "sslmode=disable from source.dsn."
        )
    ahead = server.clock_ahead_seconds
    if abs(ahead) > _CLOCK_TOLERANCE_SECONDS:
        where = "ahead of" if ahead > 0 else "behind"
        yield warns(
            f"The server's clock is {abs(ahead):.0f} s {where} this machine's, so lags and times "
            "will be shown wrong."
        )


def _transactions(facts: PostgresFacts) -> Iterator[Problem]:
    """What a new slot, and with it the first copy, waits for; younger ones end by themselves."""
    waited_for = [
        each
        for each in facts.transactions
        if each.age_seconds is None or each.age_seconds >= _YOUNG_SECONDS
    ]
    if not waited_for:
        return
    shown = "; ".join(map(_transaction, waited_for[:_MOST_NAMED]))
    rest = len(waited_for) - _MOST_NAMED
    more = f" and {rest} more" if rest > 0 else ""
    yield warns(
        f"A new slot, and every copy, waits until these transactions have ended: {shown}{more}.",
        *(_ending(each) for each in waited_for[:_MOST_NAMED]),
    )


def _transaction(each: RunningTransaction) -> str:
    age = "" if each.age_seconds is None else f", open for {each.age_seconds:.0f} s"
    who = each.role or "an unknown role"
    if each.prepared is not None:
        return f"prepared transaction {quote_literal(each.prepared)} of {who}{age}"
    return f"process {each.process} of {who}{age}"


def _ending(each: RunningTransaction) -> str:
    if each.prepared is not None:
        return f"rollback prepared {quote_literal(each.prepared)};"
    return f"select pg_terminate_backend({each.process});"


def _slot(slot: SlotFacts, server: ServerFacts) -> Iterator[Problem]:
    drop = f"select pg_drop_replication_slot({quote_literal(slot.name)});"
    if slot.plugin != PLUGIN or slot.database != server.database:
        found = "is physical" if slot.plugin is None else f"uses {slot.plugin} in {slot.database}"
        yield stops(
            f"The slot {slot.name} {found}, not {PLUGIN} in {server.database}: name another one in "
            "source.slot, or drop it if it is not needed.",
            drop,
        )
        return
    yield from _slot_health(slot, drop)
    if slot.is_active:
        yield warns(f"The slot {slot.name} is being read at the moment, by a run of its own.")
    if slot.is_two_phase:
        yield stops(
            f"The slot {slot.name} sends transactions when they are prepared, before it is known "
            "whether they commit: drop it, and run a resync.",
            drop,
        )


def _slot_health(slot: SlotFacts, drop: str) -> Iterator[Problem]:
    if slot.is_lost:
        reason = slot.invalidation_reason or "the log it needs was removed"
        yield stops(
            f"The slot {slot.name} is lost ({reason}): drop it, and run frazil resync for every "
            "table.",
            drop,
        )
    elif slot.wal_status is WalStatus.UNRESERVED:
        yield warns(
            f"The slot {slot.name} is about to be lost: the log it needs goes with the next "
            "checkpoint. Start the pipeline now, or let the server keep more.",
            "alter system set max_slot_wal_keep_size = -1;",
            _RELOAD,
        )


def _gibibytes(size: int) -> int:
    return max(1, -(-size // _GIBIBYTE))
