"""A session of the buffer database that is kept from one run of a chore to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.dsn import SessionAccess

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.clients.postgres.dsn import SecretText
    from frazil.clients.postgres.session import Session

Result = TypeVar("Result")


class ChoreSession:
    """Belongs to one thread; after an error the next use connects again."""

    def __init__(
        self,
        dsn: SecretText,
        *,
        purpose: str,
        access: SessionAccess = SessionAccess.READ_WRITE,
        prepare: Callable[[Session], None] = lambda _session: None,
    ) -> None:
        self._dsn = dsn
        self._purpose = purpose
        self._access = access
        self._prepare = prepare
        self._session: Session | None = None

    def use(self, work: Callable[[Session], Result]) -> Result:
        """Do this in the session."""
        try:
            if self._session is None:
                self._session = connect(self._dsn, purpose=self._purpose, access=self._access)
                self._prepare(self._session)
            return work(self._session)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the session; a second time does nothing."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
