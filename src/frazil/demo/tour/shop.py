"""A small shop in Postgres: six tables with every kind of column, and rows enough to see a copy.

Rows come from their numbers and from nothing else, so that every shop of one size is the same.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.dsn import SessionAccess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.clients.postgres.session import Session

SCHEMA = "shop"
TABLES = ("customers", "products", "orders", "order_lines", "payments", "carts")

# When the shop opened: all its times are counted from here, none comes from a clock.
OPENED_AT = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)

# A value above 2 kB is stored out of line (TOAST); a third of the descriptions is.
_LONG_EVERY, _LONG_WORDS = 3, 90

_TABLES = (
    f"create schema {SCHEMA}",
    "create type shop.order_status as enum ('open', 'paid', 'shipped', 'returned')",
    """
    create table shop.customers (
        id uuid primary key,
        number integer not null unique,
        email text not null,
        address jsonb not null,
        tags text[] not null,
        is_active boolean not null,
        born_on date,
        signed_up_at timestamptz not null,
        portrait bytea
    )
    """,
    """
    create table shop.products (
        sku text primary key,
        number integer not null unique,
        title text not null,
        description text not null,
        price numeric(10, 2) not null,
        weight_kg double precision not null,
        sizes integer[] not null,
        attributes jsonb not null,
        is_listed boolean not null
    )
    """,
    # Not compressed, so that long values are certain to be stored out of line.
    "alter table shop.products alter column description set storage external",
    """
    create table shop.orders (
        id bigint primary key,
        customer_id uuid not null,
        status shop.order_status not null,
        total numeric(12, 2) not null,
        placed_at timestamptz not null,
        deliver_on date,
        note text
    )
    """,
    """
    create table shop.order_lines (
        order_id bigint not null references shop.orders on delete cascade,
        line smallint not null,
        sku text not null,
        quantity integer not null,
        unit_price numeric(10, 2) not null,
        primary key (order_id, line)
    )
    """,
    """
    create table shop.payments (
        id bigint not null,
        currency text not null,
        order_id bigint not null,
        amount numeric(14, 4) not null,
        reference uuid not null,
        paid_at timestamp not null,
        primary key (id, currency)
    ) partition by list (currency)
    """,
    "create table shop.payments_eur partition of shop.payments for values in ('EUR')",
    "create table shop.payments_other partition of shop.payments default",
    "create index on shop.payments (order_id)",
    """
    create table shop.carts (
        id bigint primary key,
        customer_id uuid not null,
        items jsonb not null,
        saved_at timestamptz not null
    )
    """,
)

_ROWS = (
    """
    insert into shop.customers
    select md5('customer ' || n)::uuid, n, 'person' || n || '@example.com',
        jsonb_build_object('city', 'City ' || n %% 90, 'postcode', lpad((n * 7)::text, 5, '0')),
        case when n %% 4 = 0 then array['newsletter', 'it''s, "quoted"'] else '{}' end,
        n %% 11 <> 0, date '1950-01-01' + n %% 20000, %(opened)s - n * interval '1 minute',
        case when n %% 5 = 0 then decode(md5(n::text), 'hex') end
    from generate_series(1, %(customers)s) n
    """,
    """
    insert into shop.products
    select 'SKU-' || lpad(n::text, 5, '0'), n, 'Product ' || n,
        case when n %% %(long_every)s = 0 then repeat(md5(n::text) || ' ', %(long_words)s)
             else 'Plain and short: ' || n end,
        (n * 37 %% 20000 + 99)::numeric / 100, n %% 70 / 8.0, array[n %% 10, n %% 7 + 30],
        jsonb_build_object('colour', (array['red', 'green', 'blue'])[n %% 3 + 1], 'rank', n),
        n %% 13 <> 0
    from generate_series(1, %(products)s) n
    """,
    """
    insert into shop.orders
    select n, md5('customer ' || n * 31 %% %(customers)s + 1)::uuid,
        (array['open', 'paid', 'shipped', 'returned'])[n %% 4 + 1]::shop.order_status, 0,
        %(opened)s + n * interval '20 seconds', date '2026-01-06' + n %% 30,
        case when n %% 9 = 0 then 'Leave it at the door, please.' end
    from generate_series(1, %(orders)s) n
    """,
    """
    insert into shop.order_lines
    select n, line, p.sku, 1 + (n + line) %% 4, p.price
    from generate_series(1, %(orders)s) n
    cross join generate_series(1, 3) line
    join shop.products p on p.number = (n * 7 + line * 13) %% %(products)s + 1
    where line <= n %% 3 + 1
    """,
    """
    update shop.orders
    set total = lines.total
    from (
        select order_id, sum(quantity * unit_price) as total
        from shop.order_lines
        group by order_id
    ) lines
    where lines.order_id = id
    """,
    """
    insert into shop.payments
    select id, case when id %% 3 = 0 then 'USD' else 'EUR' end, id, total / 3,
        md5('payment ' || id)::uuid, (placed_at at time zone 'UTC') + interval '5 minutes'
    from shop.orders
    where status <> 'open'
    """,
    """
    insert into shop.carts
    select n, md5('customer ' || n)::uuid, jsonb_build_array(n, n + 1), %(opened)s
    from generate_series(1, %(carts)s) n
    """,
    "analyze shop.customers, shop.products, shop.orders, shop.order_lines, shop.payments",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopSize:
    """How many rows a new shop has; lines and payments follow from the orders.

    By default about 45,000, which take a moment to copy.
    """

    customers: int = 4_000
    products: int = 1_000
    orders: int = 12_000
    carts: int = 500


@dataclass(frozen=True, slots=True)
class Dsn:
    """A connection string that does not show itself."""

    value: str = field(repr=False)

    def get_secret_value(self) -> str:
        """The string, password included."""
        return self.value


def create_shop(dsn: str, *, size: ShopSize | None = None) -> Mapping[str, int]:
    """Make the shop in a database that has none; the rows of each table."""
    size = size or ShopSize()
    parameters: dict[str, object] = {
        "opened": OPENED_AT,
        "customers": size.customers,
        "products": size.products,
        "orders": size.orders,
        "carts": size.carts,
        "long_every": _LONG_EVERY,
        "long_words": _LONG_WORDS,
    }
    with open_shop(dsn) as session:
        with session.transaction():
            for statement in _TABLES:
                session.execute(statement, doing="making the shop")
            for statement in _ROWS:
                session.execute(statement, parameters, doing="filling the shop")
        return count_rows(session)


def open_shop(dsn: str) -> Session:
    """A session that may change the shop."""
    return connect(Dsn(dsn), purpose="shop", access=SessionAccess.READ_WRITE)


def count_rows(session: Session) -> Mapping[str, int]:
    """How many rows each table has now."""
    # The names are constants of this module.
    return {
        name: session.load(int, f"select count(*) from {SCHEMA}.{name}", doing="counting rows")[0]  # noqa: S608
        for name in TABLES
    }


def customer_id(number: int) -> UUID:
    """The key of the customer with this number."""
    # As the server computes it for the first ones; no secret depends on it.
    return UUID(hashlib.md5(f"customer {number}".encode(), usedforsecurity=False).hexdigest())
