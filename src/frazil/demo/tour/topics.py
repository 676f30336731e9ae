"""Two topics of a shop: orders as plain records, and customers as change events of Debezium.

A seed decides everything but the times.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, TypeAlias

from frazil.demo.tour.segment_writer import ProducedRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDERS, CUSTOMERS = "orders", "cdc.customers"
# Which of them have a mirror.
TOPICS = {ORDERS: False, CUSTOMERS: True}

_STATUSES = ("open", "paid", "shipped", "returned")
_CITIES = ("Bergen", "Graz", "Lyon", "Porto", "Turku", "Zadar")
_MOST_CENTS = 50_000

# Name, city, points.
Customer: TypeAlias = tuple[str, str, int]


class Orders:
    """Orders in the order of their numbers."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._number = 0

    def draw(self, now_ms: int) -> ProducedRecord:
        """The next one."""
        self._number += 1
        document = {
            "id": self._number,
            "customer_id": self._chance.randrange(1, 1_000),
            "status": self._chance.choice(_STATUSES),
            "total": self._chance.randrange(100, _MOST_CENTS),
            "placed_at": now_ms,
        }
        return ProducedRecord(str(self._number).encode(), _json(document), now_ms)


def damaged_order(now_ms: int) -> ProducedRecord:
    """One without its number, which no row can have."""
    return ProducedRecord(b"?", _json({"status": "open", "total": 1}), now_ms)


class Customers:
    """Customers who come, change and go; ``rows`` is what a mirror of them has to hold."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._number = 0
        self.rows: dict[int, Customer] = {}

    def read(self, now_ms: int) -> tuple[int, ProducedRecord]:
        """A customer who was there before the topic began, with the number that is the key."""
        return self._put(self._next(), "r", now_ms)

    def draw(self, now_ms: int) -> Iterator[tuple[int, ProducedRecord]]:
        """One change: an update most often, else someone comes, or goes with a tombstone."""
        dice = self._chance.random()
        if dice < 0.2 or not self.rows:  # noqa: PLR2004 - every fifth comes
            yield self._put(self._next(), "c", now_ms)
            return
        # Numbers of those who are gone come up as well; then the next one is taken.
        number = self._chance.randrange(1, self._number + 1)
        while number not in self.rows:
            number = number % self._number + 1
        if dice < 0.3:  # noqa: PLR2004 - and every tenth goes
            event = _event("d", before=_row(number, self.rows.pop(number)), now_ms=now_ms)
            yield number, ProducedRecord(_key(number), event, now_ms)
            yield number, ProducedRecord(_key(number), None, now_ms)
        else:
            yield self._put(number, "u", now_ms)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _put(self, number: int, operation: str, now_ms: int) -> tuple[int, ProducedRecord]:
        city, points = self._chance.choice(_CITIES), self._chance.randrange(1_000)
        self.rows[number] = f"Customer {number}", city, points
        event = _event(operation, after=_row(number, self.rows[number]), now_ms=now_ms)
        return number, ProducedRecord(_key(number), event, now_ms)


def _event(operation: str, *, now_ms: int, before: object = None, after: object = None) -> bytes:
    source = {"connector": "postgresql", "table": "customers", "ts_ms": now_ms}
    return _json({"before": before, "after": after, "source": source, "op": operation})


def _row(number: int, customer: Customer) -> dict[str, object]:
    name, city, points = customer
    return {"id": number, "name": name, "city": city, "points": points}


def _key(number: int) -> bytes:
    return _json({"id": number})


def _json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
