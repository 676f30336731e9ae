"""Whether a server's log is the one that was read before; pure.

A server that was restored from a copy of its volume has the same identity and timeline, and its log
may have grown past everything that we have: nothing of that shows that it is another history. What
shows it is the log itself. The ledger keeps a witness of the stretch that was read last, and a slot
that was confirmed before the end of that stretch has to give the same stretch again.

A slot that was confirmed at its end or later needs no proof: it was confirmed by us, on a log that
reached there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from frazil.codec.malformed import MalformedFileError
from frazil.codec.pgoutput.message_decoder import decode_message
from frazil.codec.pgoutput.messages import Begin, Commit, MessageKind
from frazil.codec.pgoutput.replication_frames import Keepalive
from frazil.errors import MalformedChangeError, SourceReplacedError
from frazil.model.postgres.lsn import format_lsn, parse_lsn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.clients.postgres.replication_stream import Frame
    from frazil.codec.pgoutput.messages import Message

_RIGHT_SERVER = "point source.dsn at the right server, or frazil resync --all"
_ROWS = frozenset(
    {MessageKind.INSERT, MessageKind.UPDATE, MessageKind.DELETE, MessageKind.TRUNCATE}
)
_BOUNDS = frozenset({MessageKind.BEGIN, MessageKind.COMMIT})


class SeenTransaction(NamedTuple):
    """A transaction with published rows, as its Begin described it."""

    final_lsn: int
    xid: int
    committed_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """The stretch of the log that was read last.

    Every transaction with published rows that committed from ``begin`` to before ``end`` was read,
    and the only one of them is ``last``, which then committed at ``begin``; None if there was none.
    """

    begin: int
    end: int
    last: SeenTransaction | None = None

    def extended(self, end: int, last: SeenTransaction | None = None) -> Witness:
        """The witness once the log was read up to ``end``; what is read again changes nothing."""
        if end <= self.end:
            return self
        if last is None:
            return Witness(begin=self.begin, end=end, last=self.last)
        return Witness(begin=last.final_lsn, end=end, last=last)


def encode_witness(witness: Witness) -> str:
    """One line of JSON for the ledger."""
    last = witness.last
    document: dict[str, object] = {
        "begin": format_lsn(witness.begin),
        "end": format_lsn(witness.end),
    }
    if last is not None:
        document |= {"xid": last.xid, "committed_at": last.committed_at}
    return json.dumps(document, separators=(",", ":"))


def decode_witness(text: str | None) -> Witness | None:
    """What the ledger kept; None for a ledger that has none, or one of another version's."""
    try:
        document = json.loads(text or "")
        begin, end = parse_lsn(document["begin"]), parse_lsn(document["end"])
        if "xid" not in document:
            return Witness(begin=begin, end=end)
        last = SeenTransaction(begin, int(document["xid"]), int(document["committed_at"]))
        return Witness(begin=begin, end=end, last=last)
    except (KeyError, TypeError, ValueError, MalformedChangeError):
        return None


class HistoryProof:
    """Compares a stream that begins at ``begin`` with what the witness says of it."""

    def __init__(self, witness: Witness, *, confirmed: int) -> None:
        self._end = witness.end
        # A stream begins where its slot was confirmed: what is before that is not sent again.
        self.begin = max(witness.begin, confirmed)
        last = witness.last
        self._awaited = last if last is not None and confirmed <= last.final_lsn else None
        self._transaction: SeenTransaction | None = None
        self._has_rows = False

    def take(self, frames: Sequence[Frame]) -> bool:
        """Go on with these; True once all of the stretch was seen and is as it was.

        Raises SourceReplacedError when it is another one.
        """
        return any(self._take(each) for each in frames)

    def _take(self, frame: Frame) -> bool:
        if isinstance(frame, Keepalive):
            # Inside a transaction it does not say that what committed before was sent.
            return self._transaction is None and self._is_past(frame.end_lsn)
        kind = frame.payload[0] if frame.payload else 0
        if kind in _ROWS:
            self._has_rows = True
        if kind not in _BOUNDS:
            return False
        match _decode(frame.payload, frame.start_lsn):
            case Begin(final_lsn, committed_at, xid):
                self._transaction = SeenTransaction(final_lsn, xid, committed_at)
                self._has_rows = False
                # Transactions are sent in the order of their commits.
                return self._is_past(final_lsn)
            case Commit(end_lsn=end_lsn):
                self._compare()
                return self._is_past(end_lsn)
        return False

    def _compare(self) -> None:
        found, self._transaction = self._transaction, None
        if found is None or not self._has_rows:
            return
        if found != self._awaited:
            message = (
                f"the server's log has a transaction at {format_lsn(found.final_lsn)} that was not "
                "there when it was read: the server was restored, or is another one."
            )
            raise SourceReplacedError(
                message, position=format_lsn(found.final_lsn), next_step=_RIGHT_SERVER
            )
        self._awaited = None

    def _is_past(self, position: int) -> bool:
        if position < self._end:
            return False
        if self._awaited is not None:
            at = format_lsn(self._awaited.final_lsn)
            message = (
                f"the server's log has not the transaction at {at} that was captured: the server "
                "was restored, or is another one."
            )
            raise SourceReplacedError(message, position=at, next_step=_RIGHT_SERVER)
        return True


def _decode(payload: bytes, position: int) -> Message:
    try:
        return decode_message(payload, in_stream=False)
    except MalformedFileError as error:
        raise MalformedChangeError(str(error), position=format_lsn(position)) from error
