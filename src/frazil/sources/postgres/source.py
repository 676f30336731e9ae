"""Changes from a Postgres database: tables are copied in snapshots, then read from a slot."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from frazil import errors
from frazil.clients.postgres.catalog_facts import (
    load_position,
    load_publication,
    load_readers,
    load_slot,
)
from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.dsn import SessionAccess
from frazil.clients.postgres.replication import connect_replication
from frazil.hooks import SystemClock, SystemRandomness
from frazil.model.postgres.lsn import format_lsn, parse_lsn
from frazil.sources.postgres.artifacts import refuse_busy
from frazil.sources.postgres.copy.round import CopyRound, copy_slot_name
from frazil.sources.postgres.preparation import discover_tables
from frazil.sources.postgres.publication.changing import publish_tables
from frazil.sources.postgres.slot.continuity import (
    SlotStep,
    as_observed,
    check_continuity,
    check_slot,
    plan_slot,
    source_identity,
)
from frazil.sources.postgres.slot.watch import advance_slot
from frazil.sources.postgres.stream.history_proof import (
    HistoryProof,
    SeenTransaction,
    Witness,
    decode_witness,
    encode_witness,
)
from frazil.sources.postgres.stream.planner import OpenStream, StreamPlanner
from frazil.sources.postgres.stream.spool import StreamSpool
from frazil.sources.postgres.tables.catalog_views import load_views_of
from frazil.sources.postgres.tables.identity import identity_differences, relation_oid
from frazil.sources.postgres.tables.selection import is_meant
from frazil.sources.protocol import Batch
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from frazil.clients.postgres.replication import ReplicationConnection, SystemIdentity
    from frazil.clients.postgres.replication_stream import ReplicationStream
    from frazil.clients.postgres.session import Session
    from frazil.hooks import Clock, Randomness
    from frazil.model.marker import Marker, Position
    from frazil.model.postgres.facts import PublicationFacts, SlotFacts
    from frazil.model.source_table import SourceTable
    from frazil.sources.postgres.settings import PostgresSettings
    from frazil.sources.postgres.tables.catalog_view import CatalogView
    from frazil.sources.protocol import Limit, Progress, Reading, Split

_log = get_logger(__name__)
_Done = TypeVar("_Done")

# The server notices that a connection is gone when it next writes to it, or reads from it.
_SLOT_PATIENCE_SECONDS = 5.0
_SLOT_POLL_SECONDS = 0.1
_RECEIVE_SECONDS = 5.0
_HEARTBEAT = "select pg_logical_emit_message(false, 'frazil', 'heartbeat')"


class PostgresSource:
    """One database, one publication, one slot.

    ``plan`` and ``plan_copy`` may run in two threads; everything else belongs to the thread that
    plans changes.
    """

    def __init__(
        self,
        settings: PostgresSettings,
        *,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._is_stopping = is_stopping
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()
        self._server: SystemIdentity | None = None
        # The position of the log as of which tables were read last.
        self._observed_at: int | None = None
        self._stream: OpenStream | None = None
        # Ends a wait for changes: set by the stream, and by others that have no more patience.
        self._woken = threading.Event()
        # What was read of the log last, as the ledger has it or will have it.
        self._witness: Witness | None = None
        self._round: CopyRound | None = None
        self._rounds = threading.Lock()
        self._advanced_at = self._clock.monotonic()

    @property
    def identity(self) -> str:
        """The server, the database and the slot."""
        return source_identity(self._identified(), self._settings.slot)

    @property
    def generation(self) -> int:
        """The server's timeline."""
        return self._identified().timeline

    def discover(self) -> tuple[SourceTable, ...]:
        """The tables that the configuration chooses, as the catalog shows them.

        One that cannot be described is among them all the same: reading it says why. So is one
        that cannot be captured at the moment, with the reason.
        """
        with self._session("reading the catalog") as session:
            self._observed_at = load_position(session)
            with session.one_view():
                return discover_tables(session, self._settings)

    def explain_identity_change(
        self, before: str, now: str, *, was_gone: bool = False
    ) -> tuple[str, ...]:
        """What the server never announces, by what the ledger recorded."""
        return identity_differences(before, now, was_gone=was_gone)

    def selects(self, table: str) -> bool:
        """Whether the patterns choose this name."""
        settings = self._settings
        return is_meant(table, include=settings.include, exclude=settings.exclude)

    def prepare(
        self, tables: Collection[str], since: Marker | None, reached: Collection[Position] = ()
    ) -> Position:
        """Have a publication that sends these tables, and a slot that keeps what follows."""
        settings = self._settings
        if self._stream is None:
            # An open stream knows more than the ledger, and no other process can read the slot.
            self._witness = None if since is None else decode_witness(since.witness)
        read_to = [] if self._witness is None else [self._witness.end]
        if since is not None:
            read_to += [parse_lsn(str(each)) for each in reached]
        with self._replication("slot") as connection:
            server = self._server = connection.identify()
            self._require_unread()
            publication, slot = self._load_artifacts()
            step = plan_slot(
                settings,
                since,
                reached=max(read_to, default=0),
                server=as_observed(server, self._observed_at),
                switches=() if since is None else connection.load_history(server.timeline),
                publication=publication,
                slot=slot,
            )
            if step is SlotStep.REPLACE:
                connection.drop_slot(settings.slot)
                _log.warning("slot dropped, to begin again", slot=settings.slot)
            if since is not None:
                self._prove_history(slot)
            self._publish(tables)
            if since is not None:
                return since.position
            if slot is not None and step is SlotStep.KEEP:
                return format_lsn(slot.confirmed_flush or 0)
            # Where servers have such slots, it is kept when another one takes over.
            created = connection.create_slot(settings.slot, failover=True)
            _log.info("slot created", slot=settings.slot)
            return format_lsn(created.consistent_point)

    def plan(self, progress: Progress, limit: Limit) -> Batch | None:
        """The next transactions that concern these tables; None when there are none yet."""
        if not progress.tables or progress.acknowledged is None:
            self._close_stream()
            return None
        stream = self._streaming(progress)
        stream.release()
        taken = stream.rest if stream.rest.segments else stream.spool.take(limit)
        if not taken.segments:
            return self._idle(stream, progress)
        batch, stream.rest = stream.planner.plan(taken, progress)
        left = len(stream.rest.segments)
        stream.taken = taken.segments[: len(taken.segments) - left]
        end, last = parse_lsn(str(batch.end)), stream.taken[-1]
        stream.planned_to = max(stream.planned_to, end)
        self._advanced_at = self._clock.monotonic()
        seen = SeenTransaction(last.last_final_lsn, last.last_xid, last.last_committed_at)
        return replace(batch, witness=self._witnessed(end, seen))

    def plan_copy(self, tables: Collection[str]) -> Batch | None:
        """Some of these tables in the snapshot that is open, or in a new one."""
        with self._rounds:
            if not tables:
                self._close_round()
                return None
            if self._round is None or not self._round.covers(tables):
                self._close_round()
                refused = self._publish(tables, only_adds=True)
                self._round = self._open_round(refused)
            return self._round.next_batch(tables)

    def wait(self, seconds: float, limit: Limit) -> bool:
        """Until a batch is full, or the stream has failed."""
        if self._stream is None:
            self._clock.wait(self._woken, seconds)
            self._woken.clear()
            return False
        try:
            return self._stream.spool.wait(seconds, limit)
        except errors.FrazilError:
            # Raised again by the next plan, where it belongs.
            return True

    def wake(self) -> None:
        """Let ``wait`` return."""
        self._woken.set()

    def newest(self) -> Position:
        """How far the server's log is."""
        with self._session("position") as session:
            return format_lsn(load_position(session))

    def has_reached(self, position: Position) -> bool:
        """Whether the stream has come there; without a table to stream there is nothing to do."""
        stream = self._stream
        if stream is None:
            return True
        return stream.planned_to >= parse_lsn(str(position))

    def kept_since(self, position: Position) -> int:
        """The bytes of log from there to its end."""
        with self._session("position") as session:
            return max(0, load_position(session) - parse_lsn(str(position)))

    @property
    def reached(self) -> int | None:
        """Every change before this position was planned; None while nothing is streamed."""
        stream = self._stream
        return None if stream is None else stream.planned_to

    def received(self) -> tuple[int, frozenset[str]] | None:
        """How far everything was received, and the tables of which nothing waits to be written."""
        stream = self._stream
        found = None if stream is None else stream.spool.received
        if stream is None or found is None:
            return None
        position, oids = found
        known = {name: oid for name, oid in stream.tables.items() if oid is not None}
        return position, frozenset(name for name, oid in known.items() if oid not in oids)

    @property
    def followed(self) -> frozenset[str]:
        """The tables that the stream has all changes of."""
        stream = self._stream
        return frozenset() if stream is None else frozenset(stream.tables)

    @property
    def is_paused(self) -> bool:
        """Whether nothing is read, because what was read fills the spool."""
        stream = self._stream
        return stream is not None and stream.spool.is_paused

    def acknowledge(self, position: Position) -> None:
        """Confirm the slot."""
        if self._stream is not None:
            self._stream.stream.confirm(parse_lsn(str(position)))
        else:
            # A stream of ours that ended a moment ago may still have it.
            self._require_unread()
            advance_slot(self._settings, str(position))

    def close(self) -> None:
        """End the stream; a snapshot that tables are being read in stays."""
        self._close_stream()
        # The next server at this address may be another one.
        self._server = None

    # --- the stream ---

    def _streaming(self, progress: Progress) -> OpenStream:
        """The stream, restarted when a table has joined that it left out so far."""
        tables = {name: relation_oid(each.identity) for name, each in progress.tables.items()}
        if self._stream is not None and not tables.keys() <= self._stream.tables.keys():
            _log.info("stream begins again", tables=len(tables.keys() - self._stream.tables.keys()))
            self._close_stream()
        if self._stream is None:
            after = parse_lsn(str(progress.acknowledged))
            self._stream = self._patiently(lambda: self._try_stream(after))
            if self._witness is None or self._witness.end < after:
                self._witness = Witness(begin=after, end=after)
        self._stream.tables = tables
        return self._stream

    def _patiently(self, work: Callable[[], _Done]) -> _Done:
        """Do this; a slot that was let go of a moment ago is waited for."""
        patience = self._clock.monotonic() + _SLOT_PATIENCE_SECONDS
        while True:
            try:
                return work()
            except errors.SlotBusyError:
                if self._clock.monotonic() > patience:
                    raise
                self._clock.sleep(_SLOT_POLL_SECONDS)

    def _require_unread(self) -> None:
        """SlotBusyError while another process reads the slot."""
        with self._session("slot") as session:
            self._patiently(lambda: self._refuse_reader(session))

    def _refuse_reader(self, session: Session) -> None:
        for reader in load_readers(session, self._settings.slot):
            is_ours = self._stream is not None and reader.process == self._stream.backend
            if reader.slot == self._settings.slot and not is_ours:
                refuse_busy(reader.slot, reader)

    def _try_stream(self, after: int) -> OpenStream:
        settings = self._settings
        slot = check_slot(
            self._load_slot(), name=settings.slot, database=self._identified().database
        )
        check_continuity(slot, after)
        stream, backend = self._read_slot(after, purpose="stream")
        try:
            spool = StreamSpool(
                stream, settings.spool, max_bytes=settings.spool_bytes, woken=self._woken
            )
        except BaseException:
            stream.close()
            raise
        planner = StreamPlanner(settings.spool, settings.options, self._views_of)
        return OpenStream(stream, spool, planner, backend=backend, planned_to=after)

    def _read_slot(self, after: int, *, purpose: str) -> tuple[ReplicationStream, int]:
        """The stream from here on, and the server's process that sends it."""
        settings = self._settings
        connection = connect_replication(settings.dsn, purpose=purpose, clock=self._clock)
        try:
            _require_same(connection.identify(), self._identified())
            backend = connection.backend
            stream = connection.stream(
                settings.slot, after=after, publications=[settings.publication]
            )
        except BaseException:
            connection.close()
            raise
        return stream, backend

    def _prove_history(self, slot: SlotFacts | None) -> None:
        """Refuse a log that is not the one that was read, before anything is taken from it."""
        witness = None if self._stream is not None else self._witness
        confirmed = 0 if slot is None else slot.confirmed_flush or 0
        if witness is None or confirmed >= witness.end:
            return
        proof = HistoryProof(witness, confirmed=confirmed)
        stream, _ = self._patiently(lambda: self._read_slot(proof.begin, purpose="history"))
        with stream:
            while not proof.take(stream.receive(_RECEIVE_SECONDS)):
                if self._is_stopping():
                    raise errors.ShutdownRequested("the history is not compared any further.")

    def _witnessed(self, end: int, last: SeenTransaction | None = None) -> str:
        known = self._witness or Witness(begin=end, end=end)
        self._witness = known.extended(end, last)
        return encode_witness(self._witness)

    def _idle(self, stream: OpenStream, progress: Progress) -> Batch | None:
        """Nothing came: the position of an idle server is moved periodically all the same."""
        position = stream.spool.position
        stream.planned_to = max(stream.planned_to, position)
        now = self._clock.monotonic()
        if now - self._advanced_at < self._settings.heartbeat_seconds:
            return None
        self._advanced_at = now
        self._beat()
        if position <= parse_lsn(str(progress.acknowledged)):
            return None
        return Batch(
            reader=NoReader(),
            splits=(),
            parts=(),
            end=format_lsn(position),
            witness=self._witnessed(position),
        )

    def _beat(self) -> None:
        """Write a message into the log, so that a slot next to a busy database moves on."""
        with (
            suppress(errors.SourceUnavailableError, errors.PermissionError),
            connect(
                self._settings.dsn, purpose="heartbeat", access=SessionAccess.READ_WRITE
            ) as session,
        ):
            session.execute(_HEARTBEAT, doing="writing a heartbeat")

    def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.spool.close()
            # It is no news to the thread that closes it.
            self._woken.clear()

    def _open_round(self, refused: Mapping[str, errors.FrazilError]) -> CopyRound:
        slot = copy_slot_name(self._settings.slot, self._randomness)
        opened = CopyRound(
            self._settings,
            slot=slot,
            clock=self._clock,
            refused=refused,
            is_stopping=self._is_stopping,
        )
        try:
            # What follows the snapshot comes from the stream, and must be of the same server.
            _require_same(opened.server, self._identified())
        except BaseException:
            opened.close()
            raise
        return opened

    def _close_round(self) -> None:
        ended, self._round = self._round, None
        if ended is not None:
            ended.close()

    # --- the catalog ---

    def _session(self, purpose: str, access: SessionAccess = SessionAccess.READ_ONLY) -> Session:
        return connect(self._settings.dsn, purpose=purpose, access=access)

    def _replication(self, purpose: str) -> ReplicationConnection:
        return connect_replication(
            self._settings.dsn, purpose=purpose, clock=self._clock, is_stopping=self._is_stopping
        )

    def _identified(self) -> SystemIdentity:
        if self._server is None:
            with self._replication("identity") as connection:
                self._server = connection.identify()
        return self._server

    def _load_artifacts(self) -> tuple[PublicationFacts | None, SlotFacts | None]:
        settings = self._settings
        with self._session("slot") as session:
            publication = load_publication(session, settings.publication)
            return publication, load_slot(session, settings.slot)

    def _load_slot(self) -> SlotFacts | None:
        with self._session("slot") as session:
            return load_slot(session, self._settings.slot)

    def _views_of(self, oids: Collection[int], types: Collection[int]) -> Mapping[str, CatalogView]:
        publication = self._settings.publication
        with self._session("reading the catalog") as session, session.one_view():
            return load_views_of(session, oids, publication=publication, types=types)

    def _publish(
        self, tables: Collection[str], *, only_adds: bool = False
    ) -> Mapping[str, errors.FrazilError]:
        with self._session("publication", SessionAccess.READ_WRITE) as session:
            return publish_tables(session, self._settings, tables, only_adds=only_adds)


class NoReader:
    """Reads nothing, for a batch that has nothing to read."""

    def read(self, split: Split) -> Iterator[Reading]:
        """There is no split to be requested."""
        raise TypeError(split)


def _require_same(found: SystemIdentity, known: SystemIdentity) -> None:
    same = (found.system_identifier, found.timeline, found.database)
    if same != (known.system_identifier, known.timeline, known.database):
        # Prepared again, it is judged with what the ledger says.
        raise errors.SourceUnavailableError("the server is another one than a moment ago.")
