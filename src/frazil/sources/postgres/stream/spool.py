"""The thread that reads a slot into the spool, whatever the rest of the process is doing.

It receives frames, sorts them into segments and answers the server. When the spool is full it only
answers, until something is released. A transaction that has outgrown memory is read to its end even
then: nothing else could free space for it.

One thread reads; one other, the driver, takes and releases. Any may close.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Protocol, Self

from frazil.errors import FrazilError, SourceUnavailableError, StorageError
from frazil.hooks import SystemRandomness
from frazil.sources.postgres.stream.transaction_spooling import (
    LARGE_BYTES,
    SEGMENT_BYTES,
    TransactionSpooling,
)
from frazil.sources.protocol import Limit
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from frazil.clients.postgres.replication_stream import Frame
    from frazil.hooks import Randomness
    from frazil.sources.postgres.spool_files import SpoolFiles
    from frazil.sources.postgres.stream.segment import Segment

# A paused reader does not see the server's keepalives. Servers with a timeout below a few of these
# would not work over any network either.
KEEP_ALIVE_SECONDS = 0.5

# Only a turn of the loop: frames and closing wake the reader at once.
_RECEIVE_SECONDS = 5.0
# A reader that is not stuck in a file system ends within milliseconds.
_CLOSE_SECONDS = 10.0
# Enough that two sessions in one folder never collide.
_TOKEN_BYTES = 6
_NEVER = Limit(rows=1 << 63, bytes=1 << 63)
_LOG = get_logger("frazil.sources.postgres")
_RANDOMNESS = SystemRandomness()


class FrameStream(Protocol):
    """What is read: ``ReplicationStream``, or a scripted stream in tests."""

    def receive(self, timeout: float) -> list[Frame]:
        """Wait for frames and give all that are there, in order; none when the time is up."""

    def keep_alive(self) -> None:
        """Send the server a status update."""

    def close(self) -> None:
        """End the stream; a thread that is receiving gets SourceUnavailableError."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Segments of complete transactions in order, and the position that they lead to.

    Without segments there is no end: ``StreamSpool.position`` says how far an idle server is.
    """

    segments: tuple[Segment, ...]
    end: int | None


class StreamSpool:
    """What has been received and not been taken yet; owns the stream and the files.

    Once the reader has failed, taking and waiting raise what it met, and the position stays where
    it was. Everything that was not confirmed will be sent again on another stream.
    """

    def __init__(
        self,
        stream: FrameStream,
        files: SpoolFiles,
        *,
        max_bytes: int,
        segment_bytes: int = SEGMENT_BYTES,
        large_bytes: int = LARGE_BYTES,
        keep_alive_seconds: float = KEEP_ALIVE_SECONDS,
        randomness: Randomness = _RANDOMNESS,
        woken: threading.Event | None = None,
    ) -> None:
        """``woken`` ends a wait: it is set here, and may be set by others."""
        self._stream = stream
        self._files = files
        self._max_bytes = max_bytes
        self._keep_alive_seconds = keep_alive_seconds
        # The reader of the slot is the only user of the files: what lies there was left behind.
        files.clear()
        self._spooling = TransactionSpooling(
            files,
            prefix=randomness.token(_TOKEN_BYTES).hex(),
            segment_bytes=segment_bytes,
            large_bytes=large_bytes,
        )
        self._woken = woken or threading.Event()
        # Guards all that follows and the spooling; notified when something was released.
        self._changed = threading.Condition()
        # Segments that must be taken together: one, or all of a large transaction.
        self._complete: deque[tuple[Segment, ...]] = deque()
        self._complete_rows = 0
        self._complete_bytes = 0
        self._parts: list[Segment] = []
        self._taken: dict[str, Segment] = {}
        self._kept_bytes = 0
        self._position = 0
        self._wanted = _NEVER
        self._is_paused = False
        self._is_overfull = False
        self._is_closed = False
        self._error: Exception | None = None
        self._reader = threading.Thread(target=self._read, name="postgres stream", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pending_rows(self) -> int:
        """The rows of complete transactions that can be taken."""
        with self._changed:
            return self._complete_rows + self._spooling.settled_rows

    @property
    def pending_bytes(self) -> int:
        """The bytes of complete transactions that can be taken."""
        with self._changed:
            return self._complete_bytes + self._spooling.settled_bytes

    @property
    def used_bytes(self) -> int:
        """The bytes of all that was not released, also of a transaction that goes on."""
        with self._changed:
            return self._used

    @property
    def is_paused(self) -> bool:
        """Whether nothing is read because the spool is full."""
        return self._is_paused

    @property
    def position(self) -> int:
        """Every transaction of the server before this position was taken, or has no captured rows.

        With nothing pending it follows an idle server. What was taken may not be durable yet: that
        is for the caller to know.
        """
        with self._changed:
            return self._advance()

    @property
    def received(self) -> tuple[int, frozenset[int]] | None:
        """How far everything was received, and the tables with changes that are not released.

        None once the reader has failed.
        """
        with self._changed:
            if self._error is not None or self._is_closed:
                return None
            kept = [*self._parts, *self._taken.values()]
            kept += [each for group in self._complete for each in group]
            oids = self._spooling.open_oids.union(*(each.oids for each in kept))
            return self._spooling.position, oids

    def wait(self, timeout: float, limit: Limit) -> bool:
        """Until so many rows or bytes can be taken, no more is read, or it is woken or too late.

        Says whether there is a reason to take. Raises what the reader met.
        """
        try:
            with self._changed:
                self._wanted = limit
                if self._is_worth_taking():
                    return True
            # Without the lock, which the reader holds while it writes files: waking never blocks.
            self._woken.wait(timeout)
            with self._changed:
                return self._is_worth_taking()
        finally:
            self._wanted = _NEVER
            self._woken.clear()

    def take(self, limit: Limit) -> Taken:
        """The oldest complete transactions up to the limit, but at least one if there are any.

        Their files stay until they are released. Raises what the reader met.
        """
        with self._changed:
            self._require_sound()
            # What is finished already may be enough.
            if self._complete_rows < limit.rows and self._complete_bytes < limit.bytes:
                self._finish_segment()
            taken: list[Segment] = []
            rows = size = 0
            while self._complete:
                rows += _rows(self._complete[0])
                size += _bytes(self._complete[0])
                if taken and (rows > limit.rows or size > limit.bytes):
                    break
                taken += self._take_first()
            if not taken:
                return Taken((), None)
            self._position = max(self._position, taken[-1].end_lsn or 0)
            return Taken(tuple(taken), self._advance())

    def release(self, segments: Iterable[Segment]) -> None:
        """Remove the files of segments that were taken; raises StorageError."""
        names = [each.name for each in segments]
        self._files.remove(names)
        with self._changed:
            for name in names:
                released = self._taken.pop(name, None)
                self._kept_bytes -= 0 if released is None else released.size
            self._changed.notify_all()

    def close(self) -> None:
        """End the reader and the stream and remove the files; in bounded time, also again."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify_all()
        self._woken.set()
        self._stream.close()
        self._reader.join(_CLOSE_SECONDS)
        if not self._reader.is_alive():
            self._spooling.abandon()
        parts = [*self._parts, *self._spooling.take_finished()]
        left = [*self._taken.values(), *parts, *chain.from_iterable(self._complete)]
        # They are cleared away when the spool is next used.
        with suppress(StorageError):
            self._files.remove(each.name for each in left)

    def _read(self) -> None:
        try:
            while not self._is_closed:
                if not self._has_space():
                    self._stream.keep_alive()
                    continue
                frames = self._stream.receive(_RECEIVE_SECONDS)
                if frames:
                    self._add(frames)
        except Exception as error:  # noqa: BLE001 - the driver raises it, whatever it is
            with self._changed:
                self._fail(error)

    def _add(self, frames: Sequence[Frame]) -> None:
        with self._changed:
            self._require_sound()
            self._spooling.take_frames(frames)
            self._collect()
            self._wake_waiting()
            is_overfull = self._spooling.is_large and self._used >= self._max_bytes
            if is_overfull and not self._is_overfull:
                _LOG.warning("a transaction is larger than the spool", bytes=self._max_bytes)
            self._is_overfull = is_overfull

    def _has_space(self) -> bool:
        """Whether to read on; otherwise it was waited for a while."""
        with self._changed:
            is_full = self._used >= self._max_bytes and not self._spooling.is_large
            if is_full != self._is_paused:
                self._is_paused = is_full
                event = "the spool is full" if is_full else "the spool has space again"
                # Not news where tables are slower than the source: it comes with every batch.
                _LOG.debug(event, used=self._used)
                self._wake_waiting()
            if is_full and not self._is_closed:
                self._changed.wait(self._keep_alive_seconds)
            return not is_full

    def _wake_waiting(self) -> None:
        if self._wanted is not _NEVER and self._is_worth_taking():
            self._woken.set()

    def _fail(self, error: Exception) -> None:
        if self._error is None and not self._is_closed:
            self._error = error
        self._woken.set()

    def _require_sound(self) -> None:
        if self._is_closed:
            raise SourceUnavailableError("the stream is closed.")
        if self._error is not None:
            raise self._error

    def _is_worth_taking(self) -> bool:
        self._require_sound()
        rows = self._complete_rows + self._spooling.settled_rows
        size = self._complete_bytes + self._spooling.settled_bytes
        is_enough = rows >= self._wanted.rows or size >= self._wanted.bytes
        return is_enough or (self._is_paused and rows > 0)

    def _finish_segment(self) -> None:
        # Here and not in the reader, which may be waiting for the server.
        try:
            self._spooling.finish_segment()
        except FrazilError as error:
            self._fail(error)
            raise
        self._collect()

    def _collect(self) -> None:
        """Sort what was finished: the segments of a large transaction wait for its last one."""
        for segment in self._spooling.take_finished():
            self._kept_bytes += segment.size
            self._parts.append(segment)
            if segment.end_lsn is not None:
                self._complete.append(tuple(self._parts))
                self._complete_rows += _rows(self._parts)
                self._complete_bytes += _bytes(self._parts)
                self._parts = []

    def _take_first(self) -> tuple[Segment, ...]:
        first = self._complete.popleft()
        self._complete_rows -= _rows(first)
        self._complete_bytes -= _bytes(first)
        self._taken.update((each.name, each) for each in first)
        return first

    def _advance(self) -> int:
        # After a failure what was received last may be in no segment.
        is_all_taken = not self._complete and not self._spooling.settled_rows
        if is_all_taken and self._error is None:
            self._position = max(self._position, self._spooling.position)
        return self._position

    @property
    def _used(self) -> int:
        return self._kept_bytes + self._spooling.open_bytes


def _rows(segments: Iterable[Segment]) -> int:
    return sum(each.rows for each in segments)


def _bytes(segments: Iterable[Segment]) -> int:
    return sum(each.size for each in segments)
