"""A replication connection: its commands, who the server is, slots with snapshots, the stream."""

from __future__ import annotations

import select
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Self

import psycopg
from psycopg import pq
from psycopg.rows import args_row, scalar_row

from frazil import errors
from frazil.clients.postgres.connecting import open_replication
from frazil.clients.postgres.replication_stream import ReplicationStream
from frazil.clients.postgres.translation import (
    DUPLICATE_OBJECT,
    LOCK_NOT_AVAILABLE,
    NOT_IN_PREREQUISITE_STATE,
    UNDEFINED_FILE,
    UNDEFINED_OBJECT,
    translate_state,
    translated,
)
from frazil.hooks import SystemClock
from frazil.model.postgres.facts import VERSION_STEP
from frazil.model.postgres.lsn import format_lsn, parse_lsn
from frazil.model.postgres.names import quote_identifier, quote_literal
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from frazil.clients.postgres.dsn import SecretText
    from frazil.errors import FrazilError
    from frazil.hooks import Clock

_log = get_logger(__name__)

# A new slot waits for every transaction that is open; one that stays open is reported, not awaited.
SLOT_PATIENCE = timedelta(minutes=5)

# Before any fail-over or restore.
FIRST_TIMELINE = 1

# A busy primary logs its running transactions four times in this.
STANDBY_PATIENCE = timedelta(minutes=1)

_REPLAYED = b"""
    select case when pg_is_in_recovery() then coalesce(pg_last_wal_replay_lsn(), '0/0')::text end
"""
# How often a stop is checked for.
_STOP_CHECK_SECONDS = 0.25
_HISTORY_FIELDS = 2
_CLOCK = SystemClock()
_ON_PRIMARY = "on the primary: select pg_log_standby_snapshot()"
# What a slot promised is gone: dropped, invalidated, or its log removed.
_LOST: Mapping[str, type[FrazilError]] = MappingProxyType(
    {
        UNDEFINED_OBJECT: errors.PositionLostError,
        NOT_IN_PREREQUISITE_STATE: errors.PositionLostError,
        UNDEFINED_FILE: errors.PositionLostError,
    }
)

_TAKEN: Mapping[str, type[FrazilError]] = MappingProxyType({DUPLICATE_OBJECT: errors.SlotBusyError})
PLUGIN = "pgoutput"
# Large transactions may be sent in parts from here on; another option requests that.
PROTOCOL = 2

IDENTIFY_SYSTEM = "IDENTIFY_SYSTEM"

_OPTIONS_IN_BRACKETS = 15 * VERSION_STEP
_FAILOVER_SLOTS = 17 * VERSION_STEP


@dataclass(frozen=True, slots=True)
class SystemIdentity:
    """Which server, on which timeline, how far its log is, and the database we are in.

    A standby may have more of its log to replay, and more timelines to follow to.
    """

    system_identifier: str
    timeline: int
    log_end: int
    database: str
    is_standby: bool = False


@dataclass(frozen=True, slots=True)
class CreatedSlot:
    """A new slot, and the snapshot of all that came before its consistent point.

    The snapshot can be adopted until the next command on the connection that made it.
    """

    name: str
    consistent_point: int
    snapshot: str


@dataclass(frozen=True, slots=True)
class TimelineSwitch:
    """A timeline of the server's past, and the position at which it was left."""

    timeline: int
    position: int


class _HistoryRow(NamedTuple):
    filename: str
    # Bytes, which most versions declare to be text.
    content: bytes | str


class _IdentityRow(NamedTuple):
    system_identifier: str
    timeline: int
    log_end: str
    database: str


class _SlotRow(NamedTuple):
    name: str
    consistent_point: str
    snapshot: str
    plugin: str


class ReplicationConnection:
    """A connection that takes replication commands, one after another, from one thread."""

    def __init__(
        self,
        connection: psycopg.Connection,
        *,
        clock: Clock = _CLOCK,
        standby_patience: timedelta = STANDBY_PATIENCE,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._standby_patience = standby_patience
        self._is_stopping = is_stopping

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def server_version(self) -> int:
        """The server's version as it counts: 160004 for 16.4."""
        return self._connection.info.server_version

    @property
    def backend(self) -> int:
        """The number of the server's process for this connection."""
        return self._connection.info.backend_pid

    def identify(self) -> SystemIdentity:
        """Which server this is."""
        # Asked first: one that is promoted in between is judged when it is asked again.
        replayed = self._load_replayed()
        with (
            translated("loading the identity of Postgres"),
            self._connection.cursor(row_factory=args_row(_IdentityRow)) as cursor,
        ):
            row = cursor.execute(IDENTIFY_SYSTEM.encode()).fetchone()
        if row is None:
            raise errors.SourceUnavailableError("Postgres did not say which server it is.")
        return SystemIdentity(
            system_identifier=row.system_identifier,
            timeline=row.timeline,
            # A standby names what it has received; tables are as of what it has replayed.
            log_end=parse_lsn(replayed or row.log_end),
            database=row.database,
            is_standby=replayed is not None,
        )

    def _load_replayed(self) -> str | None:
        """How far a standby has come; None for a server that follows no other one."""
        with (
            translated("checking whether Postgres is a standby"),
            self._connection.cursor(row_factory=scalar_row) as cursor,
        ):
            found = cursor.execute(_REPLAYED).fetchone()
        return None if found is None else str(found)

    def load_history(self, timeline: int) -> tuple[TimelineSwitch, ...]:
        """The timelines that led to this one, oldest first; none for the first."""
        if timeline <= FIRST_TIMELINE:
            return ()
        with (
            translated("loading the timeline history of Postgres"),
            self._connection.cursor(row_factory=args_row(_HistoryRow)) as cursor,
        ):
            row = cursor.execute(timeline_history_command(timeline).encode()).fetchone()
        if row is None:
            return ()
        content = row.content
        return parse_history(content.encode() if isinstance(content, str) else bytes(content))

    def create_slot(
        self, name: str, *, temporary: bool = False, failover: bool = False
    ) -> CreatedSlot:
        """Create a slot and export its snapshot, once the transactions that are open have ended.

        A temporary one lives as long as this connection, and a little longer, until the server has
        seen its end: SlotBusyError while another one has the name. SourceUnavailableError when a
        transaction stays open for longer than the connection's patience, or when the primary of a
        standby does not log its transactions in time; ShutdownRequested when a stop is requested
        meanwhile. Then there is no slot.
        ``failover`` is requested where the server has such slots, which a standby cannot have.
        """
        is_standby = self._load_replayed() is not None
        command = create_slot_command(
            name,
            temporary=temporary,
            failover=failover and not is_standby,
            server_version=self.server_version,
        )
        if is_standby:
            _log.info("a slot on a standby waits for its primary", slot=name, remedy=_ON_PRIMARY)
        patience = self._standby_patience if is_standby else None
        row, in_vain = None, None
        with (
            translated(f"creating the slot {name}", meanings=_TAKEN if temporary else {}),
            self._connection.cursor(row_factory=args_row(_SlotRow)) as cursor,
        ):
            try:
                with self._given_up(patience):
                    row = cursor.execute(command.encode()).fetchone()
            except psycopg.errors.LockNotAvailable:
                in_vain = _behind_a_transaction(name)
            except psycopg.errors.QueryCanceled:
                # Another one may have cancelled it as well: then it may be tried again.
                in_vain = _waited_for_the_primary(name) if is_standby else None
                if self._is_stopping():
                    in_vain = errors.ShutdownRequested("the slot is not waited for any longer.")
                if in_vain is None:
                    raise
        if in_vain is not None:
            raise in_vain
        if row is None:
            message = f"Postgres did not say where the slot {name} begins."
            raise errors.SourceUnavailableError(message)
        return CreatedSlot(row.name, parse_lsn(row.consistent_point), row.snapshot)

    @contextmanager
    def _given_up(self, patience: timedelta | None) -> Iterator[None]:
        """Cancel the command of the block when it takes longer, or when the end is wished."""
        ended = threading.Event()
        began = self._clock.monotonic()

        def is_due() -> bool:
            waited = self._clock.monotonic() - began
            return self._is_stopping() or (
                patience is not None and waited > patience.total_seconds()
            )

        def watch() -> None:
            while not ended.wait(_STOP_CHECK_SECONDS):
                if is_due():
                    with suppress(errors.FrazilError):
                        self.cancel()

        watcher = threading.Thread(target=watch, name="frazil slot", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def drop_slot(self, name: str, *, wait: bool = False) -> None:
        """Drop a slot. SlotBusyError while it is read, PositionLostError if there is none."""
        with translated(f"dropping the slot {name}", meanings=_LOST):
            self._connection.execute(drop_slot_command(name, wait=wait).encode())

    def cancel(self) -> None:
        """Ask the server to cancel the command that is running; from any thread."""
        with translated("cancelling a command"):
            self._connection.cancel_safe()

    def stream(self, slot: str, *, after: int, publications: Sequence[str]) -> ReplicationStream:
        """Begin to stream; the connection belongs to the stream from here on.

        The server begins at ``after`` or where the slot was last confirmed, whichever is later: a
        slot that is ahead must have been found before. SlotBusyError while another connection
        reads it, PositionLostError when slot or log are gone.
        """
        doing = f"reading the slot {slot}"
        command = start_command(slot, after=after, publications=publications)
        pgconn = self._connection.pgconn
        with translated(doing):
            result = pgconn.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            state = result.error_field(pq.DiagnosticField.SQLSTATE)
            if state is None:
                message = f"{doing} failed: the server closed the connection."
                raise errors.SourceUnavailableError(message)
            raise translate_state(state.decode(), doing=doing, meanings=_LOST)
        return ReplicationStream(self._connection, doing=doing, meanings=_LOST, clock=self._clock)

    def is_alive(self) -> bool:
        """Whether the connection is open, as far as is known here; nothing is sent.

        For a connection that waits: a snapshot that it exported can be adopted as long as it does.
        """
        pgconn = self._connection.pgconn
        if self._connection.closed:
            return False
        poll = select.poll()
        poll.register(pgconn.socket, select.POLLIN)
        try:
            # A server may say something to one who waits, such as a setting that has changed.
            while poll.poll(0):
                pgconn.consume_input()
        except psycopg.Error:
            return False
        return pgconn.status == pq.ConnStatus.OK

    def close(self) -> None:
        """End the connection and with it temporary slots and the snapshot."""
        self._connection.close()


def parse_history(content: bytes) -> tuple[TimelineSwitch, ...]:
    """The lines of a history file: timeline, position where it ended, and a remark."""
    lines = [line.split(None, 2) for line in content.decode(errors="replace").splitlines()]
    return tuple(
        TimelineSwitch(int(fields[0]), parse_lsn(fields[1]))
        for fields in lines
        if len(fields) >= _HISTORY_FIELDS and fields[0].isdigit()
    )


def _behind_a_transaction(slot: str) -> FrazilError:
    message = (
        f"creating the slot {slot} failed: it waits for every transaction that is open, and one "
        f"has stayed open for longer than it may take ({LOCK_NOT_AVAILABLE})."
    )
    step = "find the oldest xact_start in pg_stat_activity and end that transaction"
    return errors.SourceUnavailableError(message, next_step=step)


def _waited_for_the_primary(slot: str) -> FrazilError:
    message = (
        f"creating the slot {slot} failed: on a standby it waits until the primary logs its "
        "running transactions, and it has not in time."
    )
    return errors.SourceUnavailableError(message, next_step=_ON_PRIMARY)


def connect_replication(
    dsn: SecretText,
    *,
    purpose: str,
    slot_patience: timedelta = SLOT_PATIENCE,
    clock: Clock = _CLOCK,
    is_stopping: Callable[[], bool] = lambda: False,
) -> ReplicationConnection:
    """A connection for replication commands; raises what ``connect`` does."""
    connection = open_replication(dsn, purpose=purpose, lock_patience=slot_patience, clock=clock)
    return ReplicationConnection(
        connection,
        clock=clock,
        standby_patience=min(slot_patience, STANDBY_PATIENCE),
        is_stopping=is_stopping,
    )


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
