"""Messages of a stream become segments of complete transactions; no thread and no socket.

A transaction waits in memory for its Commit. One that grows large goes to segments of its own, as
many as it needs. Each segment describes its tables again, so that it can be read alone: a server
describes a table once in a session, and then only when something about it has changed.

Transactions without a row and emitted messages are left out. Both still say how far the server is.

A row costs a fraction of a microsecond here, which is why the first five bytes of a message, its
kind and its table, are looked up in one dictionary before anything else is checked.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from frazil.codec.malformed import MalformedFileError
from frazil.codec.pgoutput.message_decoder import decode_message
from frazil.codec.pgoutput.messages import MessageKind, Relation, Truncate
from frazil.codec.pgoutput.replication_frames import Keepalive
from frazil.errors import MalformedChangeError
from frazil.model.postgres.lsn import format_lsn
from frazil.sources.postgres.spool_files import SUFFIX
from frazil.sources.postgres.stream.open_segment import OpenSegment
from frazil.sources.postgres.stream.segment import OpenTransaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from frazil.clients.postgres.replication_stream import Frame
    from frazil.codec.pgoutput.messages import Message
    from frazil.sources.postgres.spool_files import NewFiles
    from frazil.sources.postgres.stream.segment import Segment

# Some hundred thousand changes: work enough for a task, and several for a busy minute.
SEGMENT_BYTES = 16 << 20
# What a transaction may hold in memory until it is known to be large.
LARGE_BYTES = 4 << 20
# Shares the cost of a write among many messages.
WRITE_BYTES = 256 << 10

_BEGIN = struct.Struct(">BQqI")
_COMMIT = struct.Struct(">BBQQq")
_OID = slice(1, 5)
_OID_BYTES = 4
_NO_TRANSACTION = 0


class _Known(NamedTuple):
    """A table as the server described it last, and in which transaction."""

    payload: bytes
    relation: Relation
    xid: int


class TransactionSpooling:
    """Takes frames in order, and has finished segments to take away.

    Once anything was raised, it is of no more use.
    """

    def __init__(
        self,
        files: NewFiles,
        *,
        prefix: str,
        segment_bytes: int = SEGMENT_BYTES,
        large_bytes: int = LARGE_BYTES,
        write_bytes: int = WRITE_BYTES,
    ) -> None:
        self._files = files
        self._prefix = prefix
        self._segment_bytes = segment_bytes
        self._large_bytes = large_bytes
        self._write_bytes = min(write_bytes, segment_bytes)
        self._number = 0
        self._finished: list[Segment] = []
        self._known: dict[bytes, _Known] = {}
        self._position = 0
        # The messages that are in no file yet. The first so many are of transactions that are
        # complete, the rest are of the open one.
        self._messages: list[bytes] = []
        self._size = 0
        self._settled = 0
        self._settled_size = 0
        self._settled_rows = 0
        self._settled_position = 0
        self._limit = large_bytes
        # About the open transaction: what it says of itself, how many of its messages are no
        # rows, and what was known of the tables that it described.
        self._transaction: OpenTransaction | None = None
        self._xid = _NO_TRANSACTION
        self._others = 0
        self._relations_before = 0
        self._renewed: dict[bytes, _Known | None] = {}
        self._is_large = False
        self._ordinals: Counter[int] = Counter()
        self._at = 0
        self._segment = self._new_segment()
        # The changes counted so far in the segment; empty outside transactions, where none may be.
        self._counted: dict[bytes, int] = {}
        self._takes: dict[int, Callable[[bytes], None]] = {
            MessageKind.BEGIN: self._take_begin,
            MessageKind.COMMIT: self._take_commit,
            MessageKind.INSERT: self._take_first_row,
            MessageKind.UPDATE: self._take_first_row,
            MessageKind.DELETE: self._take_first_row,
            MessageKind.TRUNCATE: self._take_truncate,
            MessageKind.RELATION: self._take_relation,
            MessageKind.TYPE: self._take_remark,
            MessageKind.ORIGIN: self._take_remark,
            MessageKind.LOGICAL_MESSAGE: self._leave_out,
        }

    @property
    def position(self) -> int:
        """Every transaction that the server has before this position was received completely."""
        return self._position

    @property
    def is_large(self) -> bool:
        """Whether a transaction is open that has grown too large for memory."""
        return self._is_large

    @property
    def open_oids(self) -> frozenset[int]:
        """The tables with changes in the segment that is not finished."""
        return frozenset(self._segment.counts())

    @property
    def settled_rows(self) -> int:
        """The rows of complete transactions in the segment that is not finished."""
        return self._settled_rows

    @property
    def settled_bytes(self) -> int:
        """The bytes of complete transactions in the segment that is not finished."""
        return 0 if self._is_large else self._segment.size + self._settled_size

    @property
    def open_bytes(self) -> int:
        """The bytes that the segment that is not finished has, or will have, in its file."""
        return self._segment.size + (self._size if self._is_large else self._settled_size)

    def take_finished(self) -> list[Segment]:
        """The segments finished since the last time, in order."""
        finished, self._finished = self._finished, []
        return finished

    def take_frames(self, frames: Sequence[Frame]) -> None:
        """Go on with these; MalformedChangeError with the position, StorageError."""
        for frame in frames:
            if isinstance(frame, Keepalive):
                self._take_keepalive(frame)
                continue
            payload = frame[3]
            head = payload[:5]
            if head in self._counted:
                self._counted[head] += 1
                self._messages.append(payload)
                self._size += len(payload)
            else:
                self._at = frame[0]
                self._take_other(payload)
            if self._size > self._limit:
                self._relieve()

    def finish_segment(self) -> None:
        """Finish the segment at the last complete transaction; the open one stays in memory.

        Does nothing where no transaction is complete. Raises StorageError.
        """
        if self._is_large or not self._segment.has_transactions:
            return
        self._part_from_settled()
        self._limit = self._large_bytes

    def abandon(self) -> None:
        """Let go of the segment that is not finished."""
        self._segment.abandon()

    def _take_keepalive(self, frame: Keepalive) -> None:
        # A logical sender names here how far it has read the log. It sends a transaction while it
        # reads that one's commit record, before it goes on: so whatever committed below is behind
        # us in this very connection, and what comes later has its commit record there or beyond.
        # Inside a transaction it is not said by all versions what the number means; we wait.
        if self._transaction is None:
            self._position = max(self._position, frame.end_lsn)

    def _take_other(self, payload: bytes) -> None:
        take = self._takes.get(payload[0]) if payload else None
        if take is None:
            found = f"the kind 0x{payload[0]:02x}" if payload else "no bytes"
            self._refuse(f"expected a message of a complete transaction, found {found}")
        take(payload)

    def _take_begin(self, payload: bytes) -> None:
        if self._transaction is not None or len(payload) != _BEGIN.size:
            self._refuse("expected the begin of a transaction after the commit of the last one")
        _, final_lsn, committed_at, self._xid = _BEGIN.unpack(payload)
        self._transaction = OpenTransaction(final_lsn, committed_at, self._xid)
        self._counted = self._segment.changes
        self._relations_before = self._segment.relations
        self._others = 0
        self._append_other(payload)

    def _take_commit(self, payload: bytes) -> None:
        transaction = self._transaction
        if transaction is None or len(payload) != _COMMIT.size:
            self._refuse("expected the commit of a transaction that began")
        _, _, commit_lsn, end_lsn, committed_at = _COMMIT.unpack(payload)
        if commit_lsn != transaction.final_lsn or committed_at != transaction.committed_at:
            self._refuse("expected the commit of the transaction that began, found another")
        rows = self._open_rows
        self._append_other(payload)
        if self._is_large:
            self._settle_large(end_lsn)
        elif rows:
            self._settle(transaction, rows, end_lsn)
        else:
            self._drop()
        self._transaction = None
        self._counted = {}
        self._renewed.clear()
        self._position = max(self._position, end_lsn)

    @property
    def _open_rows(self) -> int:
        """The rows of the open transaction, unless it is large."""
        return len(self._messages) - self._settled - self._others

    def _settle(self, transaction: OpenTransaction, rows: int, end_lsn: int) -> None:
        self._segment.settle(transaction)
        self._settled = len(self._messages)
        self._settled_size = self._size
        self._settled_rows += rows
        self._settled_position = end_lsn
        is_full = self._segment.size + self._size >= self._segment_bytes
        if is_full or self._size >= self._write_bytes:
            self._write_settled()
        if is_full:
            self._finish(end_lsn=end_lsn)
            self._segment = self._new_segment()
        self._limit = self._settled_size + self._large_bytes

    def _settle_large(self, end_lsn: int) -> None:
        self._write_all()
        self._finish(end_lsn=end_lsn)
        self._is_large = False
        self._limit = self._large_bytes
        self._ordinals.clear()
        self._segment = self._new_segment()

    def _drop(self) -> None:
        """The open transaction has no rows; what it said about tables is known all the same."""
        del self._messages[self._settled :]
        self._size = self._settled_size
        self._limit = self._settled_size + self._large_bytes
        self._segment.forget_relations(self._relations_before)
        for oid in self._renewed:
            self._segment.forget(oid)

    def _take_first_row(self, payload: bytes) -> None:
        if self._transaction is None or len(payload) <= _OID_BYTES:
            self._refuse("expected the change of a row inside a transaction")
        self._describe(payload[_OID])
        changes, head = self._segment.changes, payload[:5]
        changes[head] = changes.get(head, 0) + 1
        self._append(payload)

    def _take_truncate(self, payload: bytes) -> None:
        if self._transaction is None:
            self._refuse("expected a truncation inside a transaction")
        oids = self._truncated(payload)
        for oid in oids:
            self._describe(oid.to_bytes(_OID_BYTES))
        self._segment.truncate(oids)
        self._append(payload)

    def _take_relation(self, payload: bytes) -> None:
        relation = self._decode(payload)
        if not isinstance(relation, Relation):
            self._refuse("expected the description of a table")
        oid = payload[_OID]
        if self._segment.describes(oid) and self._segment.has_transactions and not self._is_large:
            # Rows before and after it may be of other columns, though it is the same; in segments
            # of their own they can be distinguished.
            self._part_from_settled()
        xid = _NO_TRANSACTION if self._transaction is None else self._xid
        known = _Known(payload, relation, xid)
        if self._transaction is None:
            self._segment.forget(oid)
        else:
            self._renewed.setdefault(oid, self._known.get(oid))
            self._segment.describe(oid, relation, xid)
            self._append_other(payload)
        self._known[oid] = known

    def _take_remark(self, payload: bytes) -> None:
        if self._transaction is not None:
            self._append_other(payload)

    def _leave_out(self, payload: bytes) -> None:
        """What was given to ``pg_logical_emit_message`` is not used, and it may be large."""

    def _describe(self, oid: bytes) -> None:
        if self._segment.describes(oid):
            return
        known = self._known.get(oid)
        if known is None:
            self._refuse("expected rows of a table that was described before")
        self._segment.describe(oid, known.relation, known.xid)
        self._append_other(known.payload)

    def _append(self, payload: bytes) -> None:
        self._messages.append(payload)
        self._size += len(payload)

    def _append_other(self, payload: bytes) -> None:
        self._others += 1
        self._append(payload)

    def _relieve(self) -> None:
        """The open transaction takes too much memory."""
        if not self._is_large:
            if not self._open_rows:
                # It may come to nothing yet, and descriptions alone are never much.
                self._limit += self._large_bytes
                return
            if self._segment.has_transactions:
                self._part_from_settled()
            self._is_large = True
            self._limit = self._write_bytes
        self._write_all()
        if self._segment.size >= self._segment_bytes:
            counts = self._segment.counts()
            self._finish(end_lsn=None)
            # A change of a key makes two rows of one message, so twice as many are enough.
            self._ordinals.update({oid: 2 * count for oid, count in counts.items()})
            self._segment = self._new_segment(opens=self._transaction)
            self._counted = self._segment.changes

    def _part_from_settled(self) -> None:
        """Finish the segment; the open transaction, if there is one, goes on in a new one."""
        carried = self._messages[self._settled :]
        self._write_settled()
        self._finish(end_lsn=self._settled_position, carried=carried)
        self._segment = self._new_segment()
        if carried:
            self._begin_again(carried)

    def _begin_again(self, carried: Sequence[bytes]) -> None:
        """Take the open transaction as if it came only now."""
        self._transaction = None
        self._messages.clear()
        self._size = 0
        for oid, before in self._renewed.items():
            if before is None:
                del self._known[oid]
            else:
                self._known[oid] = before
        self._renewed.clear()
        self._counted = {}
        for payload in carried:
            self._take_other(payload)

    def _write_settled(self) -> None:
        self._segment.write(self._messages[: self._settled], self._files)
        del self._messages[: self._settled]
        self._size -= self._settled_size
        self._settled = self._settled_size = 0

    def _write_all(self) -> None:
        """What was written of the open transaction makes the segment that one's own."""
        if self._transaction is not None:
            self._segment.settle(self._transaction)
        self._segment.write(self._messages, self._files)
        self._messages.clear()
        self._size = 0

    def _finish(self, *, end_lsn: int | None, carried: Sequence[bytes] = ()) -> None:
        """What was carried away is not in the segment, though it was accounted for."""
        if carried:
            self._segment.forget_relations(self._relations_before)
        for payload in carried:
            if payload[:5] in self._segment.changes:
                self._segment.changes[payload[:5]] -= 1
            elif payload[0] == MessageKind.TRUNCATE:
                self._segment.truncate(self._truncated(payload), times=-1)
        self._finished.append(self._segment.finish(end_lsn=end_lsn))
        self._settled_rows = 0

    def _new_segment(self, *, opens: OpenTransaction | None = None) -> OpenSegment:
        self._number += 1
        name = f"{self._prefix}-{self._number:08d}{SUFFIX}"
        return OpenSegment(name, opens=opens, begins_ordinals=dict(self._ordinals))

    def _truncated(self, payload: bytes) -> tuple[int, ...]:
        truncate = self._decode(payload)
        if not isinstance(truncate, Truncate):
            self._refuse("expected a truncation")
        return truncate.relation_oids

    def _decode(self, payload: bytes) -> Message:
        try:
            return decode_message(payload, in_stream=False)
        except MalformedFileError as error:
            self._refuse(str(error))

    def _refuse(self, what: str) -> NoReturn:
        raise MalformedChangeError(what, position=format_lsn(self._at)) from None
