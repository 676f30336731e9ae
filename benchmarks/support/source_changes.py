"""Changes at a Postgres server: six of ten are updates, three inserts, one a delete.

They are made at the server, a hundred rows in a transaction, over three tables. Live keys are
a range without gaps: inserts follow its end, deletes take from its beginning, and updates are
spread over all of it, so that every one of them finds its row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.support.source_server import require_equal

if TYPE_CHECKING:
    from benchmarks.support.source_server import SourceServer

ROWS_A_TRANSACTION = 100
OPERATIONS = {"UPDATE": 60, "INSERT": 30, "DELETE": 10}


@dataclass(frozen=True, slots=True)
class _Table:
    """What a row number ``n`` of version ``v`` has, and a sum over all rows in both engines."""

    name: str
    columns: str
    values: str
    changed: str
    at_source: str
    in_lake: str


_TABLES = (
    _Table(
        "accounts",
        "id bigint primary key, owner text, balance numeric(12, 2), changed_at timestamptz, "
        "is_open boolean",
        "n, 'owner ' || n % 50000, (n * 7919 + v) % 100000000 / 100.0, "
        "timestamptz '2024-01-01 00:00:00+00' + (n + v) * interval '1 second', n % 7 <> 0",
        "balance = (id * 7919 + v) % 100000000 / 100.0, "
        "changed_at = timestamptz '2024-01-01 00:00:00+00' + (id + v) * interval '1 second'",
        "sum(balance), sum(extract(epoch from changed_at)::bigint)",
        "sum(balance), sum(unix_seconds(changed_at))",
    ),
    _Table(
        "orders",
        "id bigint primary key, account bigint, quantity integer, amount numeric(12, 2), "
        "note text, placed_at timestamptz, score double precision, token uuid",
        "n, n % 100000, (n % 100)::integer, (n * 104729 + v) % 100000000 / 100.0, "
        "'as ordered ' || v, timestamptz '2024-01-01 00:00:00+00' + n * interval '1 second', "
        "(n % 1000) / 8.0, md5(n::text)::uuid",
        "amount = (id * 104729 + v) % 100000000 / 100.0, note = 'changed ' || v",
        "sum(amount), sum(crc32(convert_to(note, 'UTF8')))",
        "sum(amount), sum(crc32(note))",
    ),
    _Table(
        "readings",
        "id bigint primary key, device integer, value double precision, label text, "
        "taken_at timestamptz",
        "n, (n % 5000)::integer, (n + v) % 10000 / 8.0, substr(md5(n::text), 1, 12), "
        "timestamptz '2024-01-01 00:00:00+00' + n * interval '1 second'",
        "value = (id + v) % 10000 / 8.0",
        "sum(value), sum(crc32(convert_to(label, 'UTF8')))",
        "sum(value), sum(crc32(label))",
    ),
)
TABLES = tuple(each.name for each in _TABLES)

# Each transaction updates rows of one table, inserts into the next and deletes from the third.
_CHANGE = """
create procedure change_{updated}(first bigint[], past bigint[], v bigint) language plpgsql as $$
begin
  update {updated} set {changed}
  where id = any (array(
    select first[{u}] + (v * 31 + k * ((past[{u}] - first[{u}]) / {updates}))
                        % (past[{u}] - first[{u}])
    from generate_series(0, {updates} - 1) as k
  ));
  insert into {inserted}
  select {values} from generate_series(past[{i}], past[{i}] + {inserts} - 1) as n;
  delete from {deleted} where id >= first[{d}] and id < first[{d}] + {deletes};
end $$
"""
_CHURN = """
create procedure churn(transactions integer, version bigint) language plpgsql as $$
declare
  first bigint[] := array[{first}];
  past bigint[] := array[{past}];
begin
  for number in 1 .. transactions loop
    case number % 3
{cases}
    end case;
    commit;
  end loop;
end $$
"""


class SourceChanges:
    """Three tables at the server, and as many changes of them as are requested."""

    def __init__(self, source: SourceServer, *, rows: int) -> None:
        self._source = source
        self._transactions = 0
        for table in _TABLES:
            source.run(
                f"create table {table.name} ({table.columns})",
                f"insert into {table.name} select {table.values} "  # noqa: S608 - constants
                f"from generate_series(1::bigint, {rows}) as n, (values (0::bigint)) as start (v)",
                f"vacuum (freeze, analyze) {table.name}",
            )
        source.run(*(_change(number) for number in range(len(_TABLES))), _churn())

    def write(self, changes: int) -> None:
        """So many changes of rows, all of them committed; a multiple of a transaction's rows."""
        transactions = changes // ROWS_A_TRANSACTION
        self._source.run(f"call churn({transactions}, {self._transactions})")
        self._transactions += transactions

    def check(self, namespace: str) -> None:
        """The mirrors have what the tables have."""
        for table in _TABLES:
            mirror = f"{namespace}.{table.name}"
            session = self._source.lake.session
            session.sql(f"refresh table {mirror}")
            (found,) = session.sql(
                f"select count(*), sum(id), {table.in_lake} from {mirror}"  # noqa: S608
            ).collect()
            wanted = self._source.query_row(
                f"select count(*), sum(id), {table.at_source} from {table.name}"  # noqa: S608
            )
            require_equal(mirror, tuple(found), wanted)


def _change(number: int) -> str:
    updated, inserted, deleted = (_TABLES[(number + step) % len(_TABLES)] for step in range(3))
    return _CHANGE.format(
        updated=updated.name,
        changed=updated.changed,
        inserted=inserted.name,
        values=inserted.values,
        deleted=deleted.name,
        u=_TABLES.index(updated) + 1,
        i=_TABLES.index(inserted) + 1,
        d=_TABLES.index(deleted) + 1,
        updates=OPERATIONS["UPDATE"],
        inserts=OPERATIONS["INSERT"],
        deletes=OPERATIONS["DELETE"],
    )


def _churn() -> str:
    cases = []
    for number, table in enumerate(_TABLES):
        inserted, deleted = ((number + step) % len(_TABLES) + 1 for step in (1, 2))
        cases += [
            f"when {number} then",
            f"  call change_{table.name}(first, past, version + number);",
            f"  past[{inserted}] := past[{inserted}] + {OPERATIONS['INSERT']};",
            f"  first[{deleted}] := first[{deleted}] + {OPERATIONS['DELETE']};",
        ]
    return _CHURN.format(
        first=", ".join(f"(select min(id) from {name})" for name in TABLES),  # noqa: S608
        past=", ".join(f"(select max(id) + 1 from {name})" for name in TABLES),  # noqa: S608
        cases="\n".join(f"      {line}" for line in cases),
    )
