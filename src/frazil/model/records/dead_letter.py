"""A dead letter: a rejected record as it is kept, with the history of its attempts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from frazil.model.records.rejected_record import RejectedRecord, RejectReason

if TYPE_CHECKING:
    from datetime import datetime

# Forty-eight bits: short enough to type, and no two letters of a pipeline have the same ones.
ID_LENGTH = 12
# Between the parts that an id is made of; no part has one.
ID_SEPARATOR = "\n"


def letter_id(source: str, position: str, payload: bytes) -> str:
    """The name of a letter for people, the same for as long as it is kept."""
    parts = (source, position, sha256(payload).hexdigest())
    return sha256(ID_SEPARATOR.join(parts).encode()).hexdigest()[:ID_LENGTH]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """What is known of a letter, without its payload.

    ``position`` is where its record was read, ``table`` where it should have gone. ``attempts``
    counts how often it was read.
    """

    id: str
    source: str
    position: str
    table: str
    reason: str
    message: str
    payload_bytes: int
    first_seen_at: datetime
    last_seen_at: datetime
    attempts: int
    batch: str

    def record(self, payload: bytes) -> RejectedRecord:
        """The record that it was made of."""
        ((where, offset),) = json.loads(self.position).items()
        return RejectedRecord(
            table=self.table,
            partition=str(where).removeprefix(f"{self.table}/"),
            offset=int(offset),
            reason=RejectReason(self.reason),
            message=self.message,
            payload=payload,
        )
