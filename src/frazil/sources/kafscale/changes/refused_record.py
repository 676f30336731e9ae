"""Why one record is none of its table's rows."""

from __future__ import annotations

from frazil.model.records.rejected_record import RejectReason


class RefusedRecordError(Exception):
    """Ends the reading of one record only; the message shows nothing of its values."""

    def __init__(self, message: str, reason: RejectReason = RejectReason.INVALID) -> None:
        super().__init__(message)
        self.reason = reason
