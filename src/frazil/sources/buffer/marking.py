"""Marks events as processed beside the next batch: what was committed is not waited for twice.

Nothing depends on when it is done. What a batch has stays claimed until its events are marked, in
one transaction, so that no later batch can have them; and a process that dies before leaves the
ledger, which says that the batch is done: the next one marks them when it starts.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import TYPE_CHECKING, Final

from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.dsn import SessionAccess
from frazil.sources.buffer.claims import Claims
from frazil.sources.buffer.dead_letters import settle_letters
from frazil.sources.buffer.reading.event_queries import BY_INDEX

if TYPE_CHECKING:
    from frazil.clients.postgres.session import Session
    from frazil.sources.buffer.claims import IdSpan
    from frazil.sources.buffer.settings import BufferSettings

# A fifth of a second of the server's time: below it a second session costs more than it saves.
_LARGE: Final = 20_000


class Marking:
    """One batch at a time, in a thread and a session of its own; belongs to one thread."""

    def __init__(self, settings: BufferSettings) -> None:
        self._settings = settings
        self._claims = Claims(settings.relations, settings.pipeline, settings.choice)
        self._thread: Thread | None = None
        self._session: Session | None = None
        self._failure: Exception | None = None

    def start(self, batch: int) -> None:
        """Mark what the batches up to this one have, once those before are marked.

        Raises what went wrong with those.
        """
        self.finish()
        self._thread = Thread(target=self._work, args=(batch,), name="frazil marks", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until nothing is left to mark; raises what went wrong."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def raise_failure(self) -> None:
        """Raise what went wrong, if anything did by now; nothing is waited for."""
        if self._thread is not None and not self._thread.is_alive():
            self.finish()

    def close(self) -> None:
        """Wait, and end the session; what was not marked is marked by the next process."""
        thread, self._thread, self._failure = self._thread, None, None
        if thread is not None:
            thread.join()
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _work(self, batch: int) -> None:
        try:
            session = self._working()
            self._mark_large(session, batch)
            self._claims.acknowledge(session, batch)
            settle_letters(session, self._settings.relations)
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits for it
            self._failure = error
            if self._session is not None:
                self._session.close()
                self._session = None

    def _mark_large(self, session: Session, batch: int) -> None:
        """Mark a large batch in two halves at a time, each in a transaction of its own.

        What is marked stays claimed until all of it is: to be marked again changes nothing.
        """
        span = self._claims.load_span(session, batch)
        if span.end - span.first < _LARGE:
            return
        lower, upper = span.halves()
        with ThreadPoolExecutor(1, thread_name_prefix="frazil marks") as threads:
            other = threads.submit(self._mark_half, batch, lower)
            self._claims.mark(session, batch, upper)
            other.result()

    def _mark_half(self, batch: int, span: IdSpan) -> None:
        with self._connect() as session:
            self._claims.mark(session, batch, span)

    def _working(self) -> Session:
        if self._session is None or self._session.is_closed:
            self._session = self._connect()
        return self._session

    def _connect(self) -> Session:
        session = connect(self._settings.dsn, purpose="mark", access=SessionAccess.READ_WRITE)
        session.execute(BY_INDEX, doing="setting up the session")
        return session
