"""A record of a source that cannot become a row, on its way to the dead letters."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

# About what one takes in memory in addition to its payload.
_RECORD_BYTES = 512


class RejectReason(StrEnum):
    """Why a record was rejected."""

    MALFORMED = "malformed"
    """Its bytes do not decode."""
    INVALID = "invalid"
    """It is not what its schema requires."""
    UNREPRESENTABLE = "unrepresentable"
    """A value of it does not fit its column."""
    BLOB = "blob"
    """What it refers to cannot be read."""
    GAP = "gap"
    """Offsets are missing before it; it has no payload."""
    POISON = "poison"
    """It fails, and the records next to it do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRecord:
    """A record, where it was read, and why it is none of its table's rows.

    Offsets in a partition of its table rise from batch to batch: what is kept once is not kept
    again. A copy has none, because what a table holds are rows. The message is for people and shows
    nothing of the payload, which is in no log.
    """

    table: str
    offset: int
    reason: RejectReason
    message: str
    payload: bytes = field(repr=False)
    partition: str = ""

    @property
    def where(self) -> str:
        """What its offset counts in."""
        return f"{self.table}/{self.partition}"

    @property
    def weight(self) -> int:
        """About how many bytes it takes in memory."""
        return _RECORD_BYTES + len(self.message) + len(self.payload)
