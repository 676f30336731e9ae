"""A running stream of a slot: frames come in, and how far we are goes out.

Three things about what is sent out. A status that confirms nothing new leaves the flush position
out: the server would wait for it before it shuts down, for as long as we answer. A keepalive that
wants a reply gets it at once. And one is sent unasked every ten seconds, which is well below any
sensible ``wal_sender_timeout``; a reader that stops receiving must call ``keep_alive`` instead.
"""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Self, TypeAlias

import psycopg
from psycopg import pq

from frazil import errors
from frazil.clients.postgres.translation import translate_state, translated
from frazil.codec.malformed import MalformedFileError
from frazil.codec.pgoutput.replication_frames import (
    Keepalive,
    LogData,
    decode_replication_frame,
    encode_standby_status,
)
from frazil.model.postgres.lsn import format_lsn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.errors import FrazilError
    from frazil.hooks import Clock

Frame: TypeAlias = LogData | Keepalive

# A sixth of the server's default patience.
STATUS_SECONDS = 10.0
# Enough to share the cost of a call, few enough that none waits long.
MOST_FRAMES = 1024

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NOTHING_NEW = 0
# What libpq says instead of a size; zero is nothing yet.
_ENDED = -1
_position = itemgetter(0)


class ReplicationStream:
    """Frames of one slot. One thread receives; any thread may confirm, keep alive or close."""

    def __init__(
        self,
        connection: psycopg.Connection,
        *,
        doing: str,
        meanings: Mapping[str, type[FrazilError]],
        clock: Clock,
    ) -> None:
        self._connection = connection
        self._doing = doing
        self._meanings = meanings
        self._clock = clock
        # libpq is not thread-safe: every use of the connection holds this.
        self._lock = threading.Lock()
        # Locked while a thread receives, so that the socket it waits for is not closed.
        self._receiving = threading.Lock()
        self._is_open = True
        self._has_ended = False
        self._received = 0
        self._confirmed = 0
        self._owes_reply = False
        self._status_due = clock.monotonic() + STATUS_SECONDS
        connection.pgconn.nonblocking = 1
        # Signals the thread that waits that another one wants to close.
        self._closing, self._close = os.pipe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def confirmed(self) -> int:
        """The position last given to ``confirm``, 0 before the first."""
        return self._confirmed

    def receive(self, timeout: float) -> list[Frame]:
        """Wait for frames and give all that are there, in order; none when the time is up.

        Keepalives are given, too: they say how far an idle server is. Raises
        SourceUnavailableError when the connection ends, for whatever reason.
        """
        deadline = self._clock.monotonic() + timeout
        with self._receiving:
            while True:
                frames, wants_writing = self._take()
                now = self._clock.monotonic()
                if frames or now >= deadline:
                    return frames
                self._wait(min(deadline, self._status_due) - now, wants_writing=wants_writing)

    def confirm(self, lsn: int) -> None:
        """Confirm that everything before this position is durable; the server forgets it then.

        Going back is ignored, as the server ignores it.
        """
        with self._lock:
            self._confirmed = max(self._confirmed, lsn)
            self._send_status(flushed=self._confirmed)

    def keep_alive(self) -> None:
        """Send a status update without confirming anything."""
        with self._lock:
            self._send_status()

    def close(self) -> None:
        """End the stream and its connection; from any thread, also a second time.

        A thread that is receiving gets SourceUnavailableError.
        """
        with self._lock:
            if not self._is_open:
                return
            self._is_open = False
        os.close(self._close)
        with self._receiving, self._lock:
            # What was confirmed last may still be in the buffer.
            with suppress(psycopg.Error):
                self._connection.pgconn.put_copy_end()
                self._connection.pgconn.flush()
            self._connection.close()
            os.close(self._closing)

    def _take(self) -> tuple[list[Frame], bool]:
        """What has arrived, and whether something of ours still waits to be sent."""
        with self._lock:
            self._require_open()
            with translated(self._doing):
                # What is here already comes first: reading on may find the connection broken.
                frames = self._buffered()
                if not frames:
                    self._connection.pgconn.consume_input()
                    frames = self._buffered()
            if self._has_ended:
                return frames, False
            if self._owes_reply or self._clock.monotonic() >= self._status_due:
                self._send_status()
            with translated(self._doing):
                return frames, self._connection.pgconn.flush() != 0

    def _buffered(self) -> list[Frame]:
        frames: list[Frame] = []
        take = self._connection.pgconn.get_copy_data
        try:
            # All that a frame costs us is in these lines.
            while len(frames) < MOST_FRAMES and not self._has_ended:
                size, data = take(1)
                if size > 0:
                    frames.append(decode_replication_frame(bytes(data)))
                elif size == _ENDED:
                    # libpq says so once only.
                    self._has_ended = True
                else:
                    break
        except MalformedFileError as error:
            self._note(frames)
            position = format_lsn(self._received)
            raise errors.MalformedChangeError(str(error), position=position) from error
        if self._has_ended and not frames:
            raise self._ending()
        self._note(frames)
        return frames

    def _note(self, frames: Sequence[Frame]) -> None:
        """How far these have come, and whether one of them wants a reply."""
        # Both kinds begin with a position: that of the message, or the end of the log.
        self._received = max(self._received, max(map(_position, frames), default=0))
        self._owes_reply |= any(each.wants_reply for each in frames if isinstance(each, Keepalive))

    def _ending(self) -> FrazilError:
        """Why the server ended the stream."""
        result = self._connection.pgconn.get_result()
        state = result and result.error_field(pq.DiagnosticField.SQLSTATE)
        if state:
            return translate_state(state.decode(), doing=self._doing, meanings=self._meanings)
        return errors.SourceUnavailableError(f"{self._doing} failed: the server ended the stream.")

    def _send_status(self, *, flushed: int = _NOTHING_NEW) -> None:
        self._require_open()
        status = encode_standby_status(
            # More than was confirmed is never sent back, so this may say what has arrived.
            written=max(self._received, flushed),
            flushed=flushed,
            applied=flushed,
            sent_at=(self._clock.now() - _EPOCH) // _MICROSECOND,
        )
        with translated(self._doing):
            self._connection.pgconn.put_copy_data(status)
            self._connection.pgconn.flush()
        self._owes_reply = False
        self._status_due = self._clock.monotonic() + STATUS_SECONDS

    def _require_open(self) -> None:
        if not self._is_open:
            message = f"{self._doing} failed: the stream is closed."
            raise errors.SourceUnavailableError(message)

    def _wait(self, seconds: float, *, wants_writing: bool) -> None:
        """Until the server has sent something, can be sent something, or another thread closes."""
        poll = select.poll()
        ours = select.POLLIN | (select.POLLOUT if wants_writing else 0)
        poll.register(self._connection.pgconn.socket, ours)
        poll.register(self._closing, select.POLLIN)
        # Waiting on for some more messages was tried: it saves us a tenth, and costs the server as
        # much, whose socket fills.
        poll.poll(max(0.0, seconds) * 1000)
