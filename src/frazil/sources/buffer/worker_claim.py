"""One process at a time works for a pipeline: it holds a lock in the buffer, others are standbys.

Next to it, the session that claims events holds the locks of the sources themselves, which other
pipelines respect as well.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from frazil.clients.postgres.connecting import connect
from frazil.errors import FrazilError, SlotBusyError
from frazil.sources.buffer.database import lock_number
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from frazil.clients.postgres.session import Session
    from frazil.sources.buffer.settings import BufferSettings

_log = get_logger(__name__)

_SETTINGS = """
    select
        set_config('tcp_keepalives_idle', '10', false),
        set_config('tcp_keepalives_interval', '5', false),
        set_config('tcp_keepalives_count', '3', false)
"""
_TAKE = "select pg_try_advisory_lock(%(key)s)"
_PING = "select true"


class _Answer(NamedTuple):
    value: bool


class WorkerClaim:
    """Whether this process works for the pipeline; the ingest's threads take turns."""

    def __init__(self, settings: BufferSettings) -> None:
        self._settings = settings
        self._session: Session | None = None
        # None until it is decided for the first time.
        self._is_standby: bool | None = None
        self.turns = 0
        self.on_turn: Callable[[], None] = lambda: None

    @property
    def may_merge(self) -> bool:
        """Whether no other process is known to do this pipeline's work."""
        return self._is_standby is False

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Begin to work, or go on; raises SlotBusyError while another process does."""
        try:
            self._hold()
            yield
        except SlotBusyError:
            if not self._is_standby:
                _log.info("standby: another process drains this buffer")
            self._is_standby = True
            raise
        except BaseException:
            if not self._is_standby:
                self._begin()
            raise
        if self._is_standby:
            _log.info("taking over")
        if self._is_standby or not self.turns:
            self.turns += 1
        self._begin()

    def release(self) -> None:
        """Let another process work."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _begin(self) -> None:
        before, self._is_standby = self._is_standby, False
        if before is not False:
            self.on_turn()

    def _hold(self) -> None:
        if self._session is not None:
            try:
                self._session.load(_Answer, _PING, doing="checking the lock")
            except FrazilError:
                # With the connection the lock is gone, and may be another one's by now.
                self.release()
        if self._session is None:
            self._session = self._take()

    def _take(self) -> Session:
        session = connect(self._settings.dsn, purpose="lock")
        try:
            session.execute(_SETTINGS, doing="setting up the lock")
            pipeline = f"pipeline {self._settings.pipeline} of {self._settings.relations.events}"
            key = {"key": lock_number(pipeline)}
            (answer,) = session.load(_Answer, _TAKE, key, doing="taking the lock")
            _require(answer, pipeline)
        except BaseException:
            session.close()
            raise
        return session


def _require(answer: _Answer, pipeline: str) -> None:
    if not answer.value:
        message = f"another process works for the {pipeline}."
        raise SlotBusyError(message)
