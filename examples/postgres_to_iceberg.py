"""A database becomes a lake, as a Python program: capture, merge, change, and capture again.

Needs a PostgreSQL server with `wal_level = logical`, and its connection string in DATABASE_URL:

    DATABASE_URL=postgresql://… python examples/postgres_to_iceberg.py FOLDER

The lake and everything else that is kept goes into FOLDER, which must exist. At the server it
makes a schema `example`, a publication and a slot, and leaves none of them behind.
"""

import os
import sys
from pathlib import Path

import psycopg

import frazil

# The document is a file as for the command; `frazil init` writes a longer one.
DOCUMENT = """
pipeline: example
catalog:
  name: lake
  kind: sql
  uri: sqlite:///catalog.db
  warehouse: ./lake
source:
  kind: postgres
  dsn: ${DATABASE_URL}
  tables: ["example.*"]
"""


def at_the_source(*statements: str) -> None:
    """Each is a transaction of its own."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def main(folder: Path) -> None:
    """Two runs in one Spark session, with changes in between."""
    document = folder / "frazil.yaml"
    document.write_text(DOCUMENT, encoding="utf-8")
    config = frazil.load_config(document, environ=os.environ).config
    at_the_source(
        "create schema example",
        "create table example.products (id int primary key, name text, price numeric(10, 2))",
        "insert into example.products values (1, 'pen', 1.50), (2, 'ink', 4.00), (3, 'desk', 350)",
    )
    with frazil.open_session(config) as spark:
        products = "select * from lake.example.products order by id"

        # Whole tables first, then what changed meanwhile; ends when nothing is left.
        frazil.run(config, once=True, session=spark)
        for row in spark.sql(products).collect():
            print(row.id, row.name, row.price)

        at_the_source(
            "update example.products set price = 1.75 where id = 1",
            "delete from example.products where id = 2",
            "insert into example.products values (4, 'lamp', 89.90)",
        )
        status = frazil.run(config, once=True, session=spark)
        print("after", sum(status.tables[0].captured.values()), "changes:")
        for row in spark.sql(products).collect():
            print(row.id, row.name, row.price)

    # What `frazil teardown` does: a slot that nobody reads keeps log for ever.
    at_the_source(
        "select pg_drop_replication_slot('example_frazil')",
        "drop publication example_frazil",
        "drop schema example cascade",
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())
