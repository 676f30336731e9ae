"""The transactions of a segment, and what every row of theirs takes from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.codec.malformed import MalformedFileError
from frazil.codec.pgoutput.messages import EPOCH_MICROSECONDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from frazil.codec.pgoutput.bulk_decoder import DecodedFrames
    from frazil.sources.postgres.stream.segment import OpenTransaction

_HALF_DIGITS = 8
_DIGITS = np.frombuffer(b"0123456789ABCDEF", np.uint8)


@dataclass(frozen=True, eq=False, slots=True)
class SegmentTransactions:
    """Transactions in the order of their commits; the last entry is the one that was open.

    So -1, by which messages say that their Begin is in an earlier segment, leads to it.
    ``of_messages`` has an entry for each message; times count from 1970.
    """

    of_messages: NDArray[np.int64]
    positions: NDArray[np.uint64]
    committed_at: NDArray[np.int64]
    origins: pa.StringArray

    def since(self, position: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions of those messages whose transactions are not before this position."""
        return np.flatnonzero(self.positions[self.of_messages[numbers]] >= np.uint64(position))

    def position(self, number: int) -> int:
        """The position of the transaction that a message is in."""
        return int(self.positions[self.of_messages[number]])


def segment_transactions(
    decoded: DecodedFrames, opens: OpenTransaction | None
) -> SegmentTransactions:
    """The transactions that these messages belong to.

    Raises MalformedFileError for parts of transactions that have not committed, and when the open
    transaction is not the one that commits first.
    """
    if decoded.stream_xids.any():
        at = int(decoded.stream_xids.argmax())
        what = f"expected complete transactions, found message {at} in a part of a streamed one"
        raise MalformedFileError(what, offset=0)
    begins = decoded.begins
    final_lsn, committed_at = (0, 0) if opens is None else (opens.final_lsn, opens.committed_at)
    if opens is not None and len(decoded.commits) and decoded.commits.commit_lsns[0] != final_lsn:
        raise MalformedFileError("expected the commit of the transaction that was open", offset=0)
    positions = np.append(begins.final_lsns, np.uint64(final_lsn))
    return SegmentTransactions(
        of_messages=decoded.transactions,
        positions=positions,
        committed_at=np.append(begins.committed_at, committed_at) + EPOCH_MICROSECONDS,
        origins=print_lsns(positions),
    )


def print_lsns(lsns: NDArray[np.uint64]) -> pa.StringArray:
    """Positions as Postgres prints them, all at once."""
    nibbles = 2 * _HALF_DIGITS
    shifts = np.arange(4 * (nibbles - 1), -1, -4, dtype=np.uint64)
    digits = ((lsns[:, None] >> shifts) & np.uint64(0xF)).astype(np.uint8)
    halves = digits.reshape(-1, 2, _HALF_DIGITS)
    # A digit is printed once one before it, or itself, is not zero; the last one always is.
    is_printed = np.logical_or.accumulate(halves != 0, axis=2)
    is_printed[:, :, -1] = True
    letters = np.full((len(lsns), 2, _HALF_DIGITS + 1), ord("/"), np.uint8)
    letters[:, :, :-1] = _DIGITS[halves]
    kept = np.zeros(letters.shape, np.bool_)
    kept[:, :, :-1] = is_printed
    kept[:, 0, -1] = True
    ends = np.zeros(len(lsns) + 1, np.int32)
    np.cumsum(kept.sum(axis=(1, 2)), out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(letters[kept])]
    return pa.Array.from_buffers(pa.string(), len(lsns), buffers)
