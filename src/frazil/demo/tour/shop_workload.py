"""The workload of the shop: one connection that changes it, at a bounded rate and by a seed."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from frazil.demo.tour.shop import open_shop
from frazil.demo.tour.shop_changes import CARTS_EMPTIED_AT, Numbers, ShopChanges
from frazil.errors import SourceUnavailableError
from frazil.hooks import SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.clients.postgres.session import Session
    from frazil.demo.tour.shop_changes import Happening, Statement
    from frazil.hooks import Clock

# A server that restarts is back within a second; one that is gone is tried this seldom.
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.1, 2.0

# A transaction that runs at the stop request is finished; it may have to wait for a lock.
_STOP_SECONDS = 60.0

_NUMBERS = """
    select
        (select coalesce(max(number), 1) from shop.customers)::integer,
        (select coalesce(max(number), 1) from shop.products)::integer,
        (select coalesce(max(id), 1) from shop.orders),
        (select coalesce(max(id), 1) from shop.payments),
        (select coalesce(max(id), 1) from shop.carts)
"""
_HAS_POINTS = """
    select count(*)::integer
    from pg_catalog.pg_attribute
    where attrelid = 'shop.customers'::pg_catalog.regclass
        and attname = 'loyalty_points' and not attisdropped
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopCounts:
    """What a workload did: transactions by kind, rows its statements touched, and outages met.

    Rows that went with others, by a cascade or a TRUNCATE, are not counted.
    """

    kinds: Mapping[Happening, int] = field(default_factory=dict)
    rows: int = 0
    outages: int = 0

    @property
    def transactions(self) -> int:
        """Those that were committed, as far as the server said so."""
        return sum(self.kinds.values())

    @property
    def brief(self) -> str:
        """The transactions."""
        return f"{self.transactions:,} transactions in the shop"

    @property
    def full(self) -> str:
        """Transactions and rows."""
        return f"{self.brief}, {self.rows:,} rows changed"

    def __add__(self, other: ShopCounts) -> ShopCounts:
        return ShopCounts(
            kinds=dict(Counter(self.kinds) + Counter(other.kinds)),
            rows=self.rows + other.rows,
            outages=self.outages + other.outages,
        )


class ShopWorkload:
    """Changes a shop until it is stopped, in a thread of its own; or so many times, here and now.

    A server that goes away is waited for, with bounded back-off. A transaction that was interrupted
    is not repeated, whatever it came to. Without an outage the same seed does the same to the same
    shop, transaction by transaction. One that does not ``reshape`` adds no column and empties no
    table at once: a copy that is under way then has to begin again.
    """

    def __init__(
        self,
        dsn: str,
        *,
        seed: int = 1,
        transactions_per_second: float = 50.0,
        reshapes: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self._dsn = dsn
        self._seed = seed
        self._reshapes = reshapes
        self._pause = 1.0 / transactions_per_second
        self._clock = clock or SystemClock()
        self._session: Session | None = None
        self._changes: ShopChanges | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed: Exception | None = None
        self._counting = threading.Lock()
        self._kinds: Counter[Happening] = Counter()
        self._rows = 0
        self._outages = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def counts(self) -> ShopCounts:
        """What was done so far; may be called from any thread."""
        with self._counting:
            return ShopCounts(kinds=dict(self._kinds), rows=self._rows, outages=self._outages)

    @property
    def is_running(self) -> bool:
        """Whether its thread still works; one that failed does not, and ``stop`` says why."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def has_shown_all(self) -> bool:
        """Whether everything has happened once."""
        return self.counts.transactions > CARTS_EMPTIED_AT

    def start(self) -> None:
        """Begin, or go on after a stop."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="shop workload", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End between two transactions; raises what the workload failed with. May be repeated."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(_STOP_SECONDS)
        self._disconnect()
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def perform(self, transactions: int) -> None:
        """So many transactions in this thread, as fast as they go; outages count as one each."""
        try:
            for _ in range(transactions):
                self._perform_next()
        finally:
            self._disconnect()

    def _run(self) -> None:
        try:
            due = self._clock.monotonic()
            while not self._stop.is_set():
                self._perform_next()
                # What was lost while the server was slow is not made up for.
                due = max(due + self._pause, self._clock.monotonic() - self._pause)
                self._stop.wait(max(0.0, due - self._clock.monotonic()))
        except Exception as error:  # noqa: BLE001 - raised by stop
            self._failed = error

    def _perform_next(self) -> None:
        connected = self._connected()
        if connected is None:
            return
        session, changes = connected
        kind, statements = changes.draw()
        try:
            rows = _perform(session, statements)
        except SourceUnavailableError:
            self._note_outage()
            return
        with self._counting:
            self._kinds[kind] += 1
            self._rows += rows

    def _connected(self) -> tuple[Session, ShopChanges] | None:
        """The session, and what is drawn from; None when the end came first."""
        wait = _FIRST_WAIT_SECONDS
        while True:
            try:
                if self._session is None:
                    self._session = open_shop(self._dsn)
                if self._changes is None:
                    self._changes = self._load_changes(self._session)
            except SourceUnavailableError:
                self._note_outage()
                if self._stop.wait(wait):
                    return None
                wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
            else:
                return self._session, self._changes

    def _load_changes(self, session: Session) -> ShopChanges:
        (numbers,) = session.load(Numbers, _NUMBERS, doing="looking at the shop")
        (points,) = session.load(int, _HAS_POINTS, doing="looking at the shop")
        return ShopChanges(
            numbers, seed=self._seed, has_points=bool(points), reshapes=self._reshapes
        )

    def _note_outage(self) -> None:
        self._disconnect()
        with self._counting:
            self._outages += 1

    def _disconnect(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


def _perform(session: Session, statements: tuple[Statement, ...]) -> int:
    with session.transaction():
        touched = [
            session.execute(each.text, each.parameters or None, doing="changing the shop")
            for each in statements
        ]
    # Statements that touch no rows answer -1.
    return sum(max(0, rows) for rows in touched)
