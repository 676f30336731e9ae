"""The largest table of the shop, and what the tour measures on it: a stocktaking.

Apart from the shop's other tables, which change all the time: here one transaction does, and two
ways to merge it are compared.
"""

from __future__ import annotations

from frazil.demo.tour.shop import OPENED_AT, SCHEMA, open_shop

STOCK = "stock"

# A merge that reads all of so many rows takes seconds; their copy takes about as long.
STOCK_ROWS = 2_000_000
# Changed keys lie apart from each other, and none is changed twice.
FEWEST_STOCK_ROWS = 20_000
_UPDATED, _DELETED, _INSERTED = 8_000, 1_000, 1_000

_ITEMS = """
    select n as item, n %% 1000 + 1 as product, 'Shelf ' || n %% 977 as shelf,
        n %% 90 as quantity,
        %(opened)s::timestamptz - n %% 50000 * interval '1 minute' as counted_at
    from generate_series(%(first)s::bigint, %(last)s::bigint) n
"""
_STOCKTAKING = (
    # One transaction, every item at most once: no engine's merge has to fold it.
    """
    update shop.stock set quantity = quantity + 1, counted_at = %(opened)s
    where item in (select n * %(step)s from generate_series(1, %(updated)s::bigint) n)
    """,
    """
    delete from shop.stock
    where item in (select n * %(step)s - 1 from generate_series(1, %(deleted)s::bigint) n)
    """,
    f"insert into shop.stock {_ITEMS}",
)


def create_stock(dsn: str, rows: int = STOCK_ROWS) -> int:
    """Make the table in a shop that has none; its rows."""
    items = {"opened": OPENED_AT, "first": 1, "last": rows}
    doing = "filling the stock"
    with open_shop(dsn) as session, session.transaction():
        session.execute(f"create table {SCHEMA}.{STOCK} as {_ITEMS}", items, doing=doing)
        # Last: one sort instead of an insert into the index for each row.
        session.execute(f"alter table {SCHEMA}.{STOCK} add primary key (item)", doing=doing)
        session.execute(f"analyze {SCHEMA}.{STOCK}", doing=doing)
    return rows


def take_stock(dsn: str, rows: int = STOCK_ROWS) -> int:
    """One large transaction over a table of so many rows: updates, deletes, inserts; how many."""
    parameters: dict[str, object] = {
        "opened": OPENED_AT,
        "step": max(rows, FEWEST_STOCK_ROWS) // _UPDATED,
        "updated": _UPDATED,
        "deleted": _DELETED,
        "first": rows + 1,
        "last": rows + _INSERTED,
    }
    with open_shop(dsn) as session, session.transaction():
        return sum(session.execute(each, parameters, doing="taking stock") for each in _STOCKTAKING)
