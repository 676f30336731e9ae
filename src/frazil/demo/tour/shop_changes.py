"""What happens in the shop: each transaction is drawn here, as statements, and performed elsewhere.

Drawing is pure. The same seed and the same numbers draw the same transactions, whatever time it is.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from frazil.demo.tour.shop import OPENED_AT, customer_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Draw = Callable[["ShopChanges"], Iterator["Statement"]]

# Early enough for a short tour, with changes before and after.
COLUMN_ADDED_AT = 100
CARTS_EMPTIED_AT, CARTS_EMPTIED_EVERY = 200, 400

# Longer than what Postgres keeps inside a row.
_LONG_WORDS = 120
_MOST_LINES = 4
_SALE_PRODUCTS = 50
_CENT = Decimal("0.01")
# Lines move up by so much, and only those that were not moved before.
_MOVED_LINE = 50
_CURRENCIES = ("EUR", "USD", "CHF")


class Happening(StrEnum):
    """A kind of transaction."""

    ORDER_PLACED = "order placed"
    ORDER_PAID = "order paid"
    ORDER_SHIPPED = "order shipped"
    ORDER_CANCELLED = "order cancelled"
    LINE_CHANGED = "line changed"
    LINE_MOVED = "line moved"
    CUSTOMER_JOINED = "customer joined"
    CUSTOMER_EDITED = "customer edited"
    CUSTOMER_LEFT = "customer left"
    PRODUCT_LISTED = "product listed"
    PRODUCT_REPRICED = "product repriced"
    PRODUCT_DESCRIBED = "product described"
    PRODUCT_RENAMED = "product renamed"
    SALE = "sale"
    PAYMENT_CONVERTED = "payment converted"
    CART_SAVED = "cart saved"
    CARTS_EMPTIED = "carts emptied"
    COLUMN_ADDED = "column added"


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement and its parameters."""

    text: str
    parameters: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class Numbers:
    """The highest number given so far of each kind; a number is never given twice."""

    customers: int
    products: int
    orders: int
    payments: int
    carts: int


class ShopChanges:
    """Draws one transaction after the other."""

    def __init__(
        self, numbers: Numbers, *, seed: int, has_points: bool, reshapes: bool = True
    ) -> None:
        self._numbers = numbers
        self._reshapes = reshapes
        self._chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._has_points = has_points
        self._drawn = 0
        self._kinds = tuple(self._DRAWING)
        self._weights = tuple(weight for weight, _ in self._DRAWING.values())

    def draw(self) -> tuple[Happening, tuple[Statement, ...]]:
        """The next transaction."""
        self._drawn += 1
        kind = self._next_kind()
        _, statements = self._DRAWING[kind]
        return kind, tuple(statements(self))

    def _next_kind(self) -> Happening:
        (kind,) = self._chance.choices(self._kinds, self._weights)
        if self._reshapes and self._drawn == COLUMN_ADDED_AT:
            return Happening.COLUMN_ADDED
        if self._reshapes and self._drawn % CARTS_EMPTIED_EVERY == CARTS_EMPTIED_AT:
            return Happening.CARTS_EMPTIED
        return kind

    # --- orders ---

    def _place_order(self) -> Iterator[Statement]:
        self._numbers.orders += 1
        order = self._numbers.orders
        yield Statement(
            """
            insert into shop.orders
                (id, customer_id, status, total, placed_at, deliver_on, note)
            values (%(order)s, %(customer)s, 'open', 0, %(at)s, %(day)s, %(note)s)
            """,
            {
                "order": order,
                "customer": customer_id(self._any(self._numbers.customers)),
                "at": self._now(),
                "day": self._now().date() + timedelta(days=self._any(20)),
                "note": self._chance.choice((None, "", "Grüße – “with” everything: \\, ', \t.")),
            },
        )
        lines, cart = self._any(_MOST_LINES), self._any(self._numbers.carts)
        for line in range(lines):
            yield Statement(
                """
                insert into shop.order_lines (order_id, line, sku, quantity, unit_price)
                select %(order)s, %(line)s, sku, %(quantity)s, price
                from shop.products where number = %(product)s
                """,
                {
                    "order": order,
                    "line": line + 1,
                    "quantity": self._any(9),
                    "product": self._any(self._numbers.products),
                },
            )
        yield _total_of(order)
        yield Statement("delete from shop.carts where id = %(cart)s", {"cart": cart})

    def _pay_order(self) -> Iterator[Statement]:
        order = self._recent_order()
        self._numbers.payments += 1
        yield Statement(
            """
            update shop.orders set status = 'paid' where id = %(order)s and status = 'open'
            """,
            {"order": order},
        )
        yield Statement(
            """
            insert into shop.payments (id, currency, order_id, amount, reference, paid_at)
            values (%(id)s, %(currency)s, %(order)s, %(amount)s, %(reference)s, %(at)s)
            """,
            {
                "id": self._numbers.payments,
                "currency": self._chance.choice(_CURRENCIES),
                "order": order,
                "amount": Decimal(self._any(10**9)) / 10_000,
                # A number that is like no other and always the same.
                "reference": customer_id(-self._numbers.payments),
                "at": self._now().replace(tzinfo=None),
            },
        )

    def _ship_order(self) -> Iterator[Statement]:
        yield Statement(
            """
            update shop.orders set status = 'shipped', deliver_on = deliver_on + 1
            where id = %(order)s
            """,
            {"order": self._recent_order()},
        )

    def _cancel_order(self) -> Iterator[Statement]:
        order = {"order": self._any(self._numbers.orders)}
        yield Statement("delete from shop.payments where order_id = %(order)s", order)
        # Its lines go with it.
        yield Statement("delete from shop.orders where id = %(order)s", order)

    def _change_line(self) -> Iterator[Statement]:
        order = self._any(self._numbers.orders)
        yield Statement(
            """
            update shop.order_lines set quantity = %(quantity)s
            where order_id = %(order)s and line = 1
            """,
            {"order": order, "quantity": self._any(20)},
        )
        yield _total_of(order)

    def _move_line(self) -> Iterator[Statement]:
        yield Statement(
            """
            update shop.order_lines set line = line + %(by)s
            where order_id = %(order)s and line < %(by)s
            """,
            {"order": self._any(self._numbers.orders), "by": _MOVED_LINE},
        )

    def _convert_payment(self) -> Iterator[Statement]:
        # The key has another value then, and the row another partition.
        yield Statement(
            """
            update shop.payments set currency = %(currency)s, amount = amount * 1.0825
            where id = %(id)s
            """,
            {
                "id": self._any(self._numbers.payments),
                "currency": self._chance.choice(_CURRENCIES),
            },
        )

    # --- customers ---

    def _join(self) -> Iterator[Statement]:
        self._numbers.customers += 1
        number = self._numbers.customers
        yield Statement(
            """
            insert into shop.customers
                (id, number, email, address, tags, is_active, born_on, signed_up_at, portrait)
            values (%(id)s, %(number)s, %(email)s, %(address)s::jsonb, %(tags)s::text[],
                true, %(born)s, %(at)s, %(portrait)s)
            """,
            {
                "id": customer_id(number),
                "number": number,
                "email": f"person{number}@example.com",
                "address": self._address(),
                "tags": ["new", "a, b", ""][: self._any(4) - 1],
                "born": OPENED_AT.date() - timedelta(days=self._any(30_000)),
                "at": self._now(),
                "portrait": self._chance.randbytes(self._any(64)),
            },
        )

    def _edit_customer(self) -> Iterator[Statement]:
        # Only once the column is there.
        points = ", loyalty_points = loyalty_points + %(points)s" if self._has_points else ""
        yield Statement(
            f"""
            update shop.customers
            set address = %(address)s::jsonb, portrait = %(portrait)s{points}
            where id = %(id)s
            """,  # noqa: S608 - both forms are written above
            {
                "id": customer_id(self._any(self._numbers.customers)),
                "address": self._address(),
                "portrait": self._chance.choice((None, b"", b"\x00\xff")),
                "points": self._any(50),
            },
        )

    def _leave(self) -> Iterator[Statement]:
        gone = {"id": customer_id(self._any(self._numbers.customers))}
        yield Statement("delete from shop.carts where customer_id = %(id)s", gone)
        yield Statement("delete from shop.customers where id = %(id)s", gone)

    def _add_column(self) -> Iterator[Statement]:
        self._has_points = True
        added = "alter table shop.customers add column if not exists loyalty_points integer"
        yield Statement(f"{added} not null default 100")

    # --- products ---

    def _list_product(self) -> Iterator[Statement]:
        self._numbers.products += 1
        number = self._numbers.products
        yield Statement(
            """
            insert into shop.products values (%(sku)s, %(number)s, %(title)s, %(description)s,
                %(price)s, %(weight)s, %(sizes)s::integer[], %(attributes)s::jsonb, true)
            """,
            {
                "sku": f"SKU-{number:05}",
                "number": number,
                "title": f"Product {number}",
                "description": self._description(),
                "price": self._price(),
                "weight": self._chance.random(),
                "sizes": [self._any(50) for _ in range(self._any(4) - 1)],
                "attributes": json.dumps({"rank": self._any(100), "colour": None}),
            },
        )

    def _reprice(self) -> Iterator[Statement]:
        # What is long is not sent again: the mirror must remember it.
        yield Statement(
            "update shop.products set price = %(price)s where number = %(number)s",
            {"number": self._any(self._numbers.products), "price": self._price()},
        )

    def _describe(self) -> Iterator[Statement]:
        yield Statement(
            """
            update shop.products set description = %(description)s, is_listed = not is_listed
            where number = %(number)s
            """,
            {"number": self._any(self._numbers.products), "description": self._description()},
        )

    def _rename(self) -> Iterator[Statement]:
        # The transaction's number makes the name a new one.
        number = self._any(self._numbers.products)
        yield Statement(
            "update shop.products set sku = %(sku)s where number = %(number)s",
            {"number": number, "sku": f"SKU-{number:05}-{self._drawn}"},
        )

    def _hold_sale(self) -> Iterator[Statement]:
        first = self._any(self._numbers.products)
        yield Statement(
            """
            update shop.products set price = greatest(price - 0.10, 0.01)
            where number between %(first)s and %(last)s
            """,
            {"first": first, "last": first + _SALE_PRODUCTS},
        )

    # --- carts ---

    def _save_cart(self) -> Iterator[Statement]:
        # An old one every other time.
        if self._chance.random() < 0.5:  # noqa: PLR2004
            self._numbers.carts += 1
            cart = self._numbers.carts
        else:
            cart = self._any(self._numbers.carts)
        yield Statement(
            """
            insert into shop.carts (id, customer_id, items, saved_at)
            values (%(id)s, %(customer)s, %(items)s::jsonb, %(at)s)
            on conflict (id) do update set items = excluded.items, saved_at = excluded.saved_at
            """,
            {
                "id": cart,
                "customer": customer_id(self._any(self._numbers.customers)),
                "items": json.dumps([self._any(self._numbers.products) for _ in range(3)]),
                "at": self._now(),
            },
        )

    def _empty_carts(self) -> Iterator[Statement]:
        yield Statement("truncate shop.carts")

    # --- values ---

    def _any(self, highest: int) -> int:
        return self._chance.randint(1, highest)

    def _recent_order(self) -> int:
        return max(1, self._numbers.orders - self._any(200))

    def _now(self) -> datetime:
        """The shop's own time: a moment later for each transaction, to the microsecond."""
        return OPENED_AT + timedelta(days=3, seconds=self._drawn, microseconds=self._drawn % 1000)

    def _price(self) -> Decimal:
        return self._any(100_000) * _CENT

    def _address(self) -> str:
        return json.dumps({"city": f"City {self._any(90)}", "postcode": f"{self._any(99_999):05}"})

    def _description(self) -> str:
        if self._chance.random() < 0.5:  # noqa: PLR2004
            return f"Plain and short: {self._any(999)}"
        return f"{self._chance.randbytes(16).hex()} " * _LONG_WORDS

    # --- which of them draws what, and how often ---

    # The frequencies are relative; carts are emptied and the column is added at their own times.
    _DRAWING: ClassVar[Mapping[Happening, tuple[int, Draw]]] = {
        Happening.ORDER_PLACED: (24, _place_order),
        Happening.ORDER_PAID: (14, _pay_order),
        Happening.ORDER_SHIPPED: (10, _ship_order),
        Happening.ORDER_CANCELLED: (4, _cancel_order),
        Happening.LINE_CHANGED: (8, _change_line),
        Happening.LINE_MOVED: (3, _move_line),
        Happening.CUSTOMER_JOINED: (6, _join),
        Happening.CUSTOMER_EDITED: (8, _edit_customer),
        Happening.CUSTOMER_LEFT: (2, _leave),
        Happening.PRODUCT_LISTED: (2, _list_product),
        Happening.PRODUCT_REPRICED: (6, _reprice),
        Happening.PRODUCT_DESCRIBED: (3, _describe),
        Happening.PRODUCT_RENAMED: (2, _rename),
        Happening.SALE: (1, _hold_sale),
        Happening.PAYMENT_CONVERTED: (3, _convert_payment),
        Happening.CART_SAVED: (10, _save_cart),
        Happening.CARTS_EMPTIED: (0, _empty_carts),
        Happening.COLUMN_ADDED: (0, _add_column),
    }


def _total_of(order: int) -> Statement:
    return Statement(
        """
        update shop.orders
        set total = (
            select coalesce(sum(quantity * unit_price), 0)
            from shop.order_lines where order_id = %(order)s
        )
        where id = %(order)s
        """,
        {"order": order},
    )
