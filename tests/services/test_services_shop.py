"""The shop of the demo and the life in it: all kinds of changes, repeatable, and hard to stop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from frazil.demo.services import embedded_postgres
from frazil.demo.tour.shop import TABLES, ShopSize, create_shop
from frazil.demo.tour.shop_changes import COLUMN_ADDED_AT, Happening
from frazil.demo.tour.shop_workload import ShopWorkload
from frazil.demo.tour.stock import FEWEST_STOCK_ROWS, create_stock, take_stock
from frazil.errors import PermissionError as RefusedError
from tests.support.postgres.access import Database, database_on
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.demo.services import Postgres

pytestmark = pytest.mark.services

SMALL = ShopSize(customers=60, products=90, orders=120, carts=20)
# Enough for everything to happen at least once.
TRANSACTIONS = 900


@pytest.fixture
def shop(postgres: Postgres) -> Iterator[Database]:
    with database_on(postgres, "shop") as database:
        create_shop(database.dsn.value, size=SMALL)
        yield database


def contents(database: Database) -> dict[str, object]:
    """Everything that the shop holds, in short."""
    query = "select md5(coalesce(string_agg(t::text, e'\\n' order by t::text), '')) from shop.{} t"
    return {name: database.ask(query.format(name)) for name in TABLES}


def test_a_new_shop_has_rows_enough_to_see_a_copy(postgres: Postgres) -> None:
    with database_on(postgres, "new_shop") as database:
        rows = create_shop(database.dsn.value)
        toasted = database.ask(
            "select count(*) from shop.products where pg_column_size(description) > 2000"
        )
    assert tuple(rows) == TABLES
    assert 20_000 < sum(rows.values()) < 60_000
    assert isinstance(toasted, int)
    assert toasted > 100


def test_everything_that_can_happen_happens(shop: Database) -> None:
    workload = ShopWorkload(shop.dsn.value, seed=5)
    workload.perform(TRANSACTIONS)
    counts = workload.counts
    assert set(counts.kinds) == set(Happening)
    assert counts.transactions == TRANSACTIONS
    assert counts.rows > TRANSACTIONS
    assert counts.outages == 0
    assert shop.ask("select count(*) from shop.products where sku ~ '^SKU-\\d+-\\d+$'") != 0
    assert shop.ask("select count(*) from shop.order_lines where line > 50") != 0
    assert shop.ask("select count(*) from shop.customers where loyalty_points <> 100") != 0
    assert shop.ask("select count(distinct currency) from shop.payments") == 3


def test_the_same_seed_does_the_same_and_another_one_does_not(postgres: Postgres) -> None:
    found = []
    for number, seed in enumerate((7, 7, 8)):
        with database_on(postgres, f"shop_{number}") as database:
            create_shop(database.dsn.value, size=SMALL)
            workload = ShopWorkload(database.dsn.value, seed=seed)
            workload.perform(TRANSACTIONS // 3)
            found.append((workload.counts, contents(database)))
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_a_second_workload_goes_on_where_the_first_one_ended(shop: Database) -> None:
    for seed in (1, 1):
        workload = ShopWorkload(shop.dsn.value, seed=seed)
        workload.perform(2 * COLUMN_ADDED_AT)
        assert workload.counts.transactions == 2 * COLUMN_ADDED_AT


def test_a_workload_keeps_to_its_rate(shop: Database) -> None:
    began = time.monotonic()
    with ShopWorkload(shop.dsn.value, transactions_per_second=40) as workload:
        wait_until(lambda: workload.counts.transactions >= 20)
    seconds = time.monotonic() - began
    done = workload.counts.transactions
    assert not workload.is_running
    assert done <= 40 * seconds + 2
    time.sleep(0.1)
    assert workload.counts.transactions == done


def test_a_server_that_restarts_is_waited_for() -> None:
    # Of its own: no one else's server is killed.
    with embedded_postgres() as server:
        create_shop(server.dsn, size=SMALL)
        with ShopWorkload(server.dsn, transactions_per_second=200) as workload:
            wait_until(lambda: workload.counts.transactions > 20)
            server.kill()
            wait_until(lambda: workload.counts.outages > 1)
            done = workload.counts.transactions
            server.restart()
            wait_until(lambda: workload.counts.transactions > done + 20)
            outages = workload.counts.outages
            server.stop()
            wait_until(lambda: workload.counts.outages > outages)
        # The server was away when the workload was ended, and nothing waited for it.
        assert not workload.is_running


def test_a_workload_that_the_server_refuses_says_so_when_it_is_stopped(shop: Database) -> None:
    shop.run("drop table shop.carts")
    workload = ShopWorkload(shop.dsn.value, transactions_per_second=500)
    workload.start()
    wait_until(lambda: not workload.is_running)
    with pytest.raises(RefusedError, match="looking at the shop"):
        workload.stop()
    workload.stop()


@pytest.mark.parametrize("rows", [FEWEST_STOCK_ROWS, 50_000])
def test_stocktaking_touches_every_item_at_most_once_and_as_many_in_any_table(
    shop: Database, rows: int
) -> None:
    assert create_stock(shop.dsn.value, rows) == rows
    shop.run("create table before as select * from shop.stock")
    changes = take_stock(shop.dsn.value, rows)
    differing = shop.ask(
        "select count(*) from before b full join shop.stock s using (item)"
        " where b.* is distinct from s.*"
    )
    assert changes == differing == 10_000
    assert shop.ask("select count(*) from shop.stock") == rows
