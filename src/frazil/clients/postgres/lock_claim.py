"""One process at a time does some work: it holds a lock at the server, the others are standbys.

The lock belongs to a connection: when its process ends, the next process gets it.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from frazil.clients.postgres.connecting import connect
from frazil.errors import FrazilError, SlotBusyError
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from frazil.clients.postgres.dsn import SecretText
    from frazil.clients.postgres.session import Session

_log = get_logger(__name__)

# A machine that vanishes closes no connection: without these the server would keep its lock for
# two hours. A session that only holds a lock is idle, which some servers end after a while.
KEEP_LOCKS: Final = """
    select
        set_config('tcp_keepalives_idle', '10', false),
        set_config('tcp_keepalives_interval', '5', false),
        set_config('tcp_keepalives_count', '3', false),
        set_config('idle_session_timeout', '0', false)
"""
_TAKE: Final = "select pg_try_advisory_lock(%(key)s)"
_PING: Final = "select true"
_HOLDER: Final = """
    select holder.pid, nullif(activity.application_name, '')
    from pg_locks as holder
    left join pg_stat_activity as activity on activity.pid = holder.pid
    where holder.locktype = 'advisory' and holder.granted and holder.objsubid = 1
        and holder.database = (select oid from pg_database where datname = current_database())
        and (holder.classid::bigint << 32) | holder.objid::bigint = %(key)s
"""
_KEY_BYTES: Final = 8


class _Answer(NamedTuple):
    is_ours: bool


class LockHolder(NamedTuple):
    """A session that has a lock."""

    process: int
    application: str | None


class LockClaim:
    """Whether this process does the work or is a standby; the ingest's threads take turns.

    ``name`` says what the lock is for, and is the lock: ``slot shop`` and the like.
    """

    def __init__(self, dsn: SecretText, name: str) -> None:
        self._dsn = dsn
        self._name = name
        self._session: Session | None = None
        # None until it is decided for the first time.
        self._is_standby: bool | None = None
        # How often this process began to work.
        self.turns = 0
        self.on_turn: Callable[[], None] = lambda: None

    @property
    def may_merge(self) -> bool:
        """Whether no other process is known to do this work.

        If the server does not answer, the process that worked before continues.
        """
        return self._is_standby is False

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Begin to work, or go on; raises SlotBusyError while another process does."""
        try:
            self._hold()
            yield
        except SlotBusyError:
            if not self._is_standby:
                _log.info("standby: another process works for this source", lock=self._name)
            self._is_standby = True
            raise
        except BaseException:
            if not self._is_standby:
                self._begin()
            raise
        if self._is_standby:
            _log.info("taking over", lock=self._name)
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
        session = connect(self._dsn, purpose="lock")
        try:
            session.execute(KEEP_LOCKS, doing="setting up the lock")
            key = {"key": lock_key(self._name)}
            (answer,) = session.load(_Answer, _TAKE, key, doing="taking the lock")
            if not answer.is_ours:
                _refuse(self._name, load_holder(session, self._name))
        except BaseException:
            session.close()
            raise
        return session


def lock_key(name: str) -> int:
    """The number that a lock of ours has at the server."""
    digest = hashlib.sha256(f"frazil {name}".encode()).digest()
    return int.from_bytes(digest[:_KEY_BYTES], signed=True)


def load_holder(session: Session, name: str) -> LockHolder | None:
    """The session that has the lock of this name."""
    found = session.load(LockHolder, _HOLDER, {"key": lock_key(name)}, doing="checking the lock")
    return found[0] if found else None


def _refuse(name: str, holder: LockHolder | None) -> None:
    reader = "another process"
    if holder is not None:
        called = "" if holder.application is None else f", {holder.application}"
        reader = f"another process (server process {holder.process}{called})"
    message = f"the {name} is used by {reader}."
    raise SlotBusyError(message)
