"""The tour: every service started, a table written through them, and the proof of what it holds."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.clients.jars import ICEBERG_VERSION
from frazil.clients.java import find_java
from frazil.clients.spark import open_session
from frazil.config import load_config
from frazil.demo.services import embedded_postgres, etcd, rest_catalog, seaweedfs
from frazil.errors import ServiceError
from frazil.seams import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    from frazil.config import Config
    from frazil.demo.services import ObjectStore, RestCatalog
    from frazil.seams import Clock

TABLE = "lake.demo.orders"
ROWS = 10_000
# Every tenth order is paid later, every twentieth is taken back: enough for real deletion vectors.
UPDATE_EVERY = 10
DELETE_EVERY = 20

_SECRET_VARIABLE = "DEMO_S3_SECRET"  # noqa: S105 - the variable's name
_DOCUMENT = """
pipeline: demo
catalog: {{kind: rest, uri: '{uri}', warehouse: '{warehouse}'}}
storage:
  s3:
    endpoint: '{endpoint}'
    path_style: true
    access_key_id: '{access_key}'
    secret_access_key: ${{{secret}}}
tables:
  - {{mirror: demo.orders, changelog: demo.orders_changelog, key: [id]}}
spark:
  master: 'local[2]'
  conf: {{spark.sql.shuffle.partitions: '2'}}
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was done, as the person should read it."""

    title: str
    detail: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Contents:
    """What a table of orders holds, in three numbers that any change would move."""

    rows: int
    paid: int
    cents: int


def expected_contents() -> Contents:
    """What the tour's table must hold, computed without Spark and without the lake."""
    kept = [number for number in range(ROWS) if number % DELETE_EVERY]
    paid = [number for number in kept if number % UPDATE_EVERY == 0]
    return Contents(rows=len(kept), paid=len(paid), cents=sum(number * 7 for number in kept))


@contextmanager
def touring(
    report: Callable[[Step], None],
    *,
    learn_secrets: Callable[[Iterable[str]], None],
    clock: Clock | None = None,
) -> Iterator[None]:
    """Take the tour, reporting each step; services live until the block is left.

    Secrets made up for the services are told to ``learn_secrets`` before anything uses them.
    Raises ServiceError when the table does not hold what was written.
    """
    # What the machine lacks is said before anything is started.
    find_java()
    watch = _Watch(report, clock or SystemClock())
    with ExitStack() as services:
        postgres = services.enter_context(embedded_postgres())
        learn_secrets([postgres.password])
        watch.done(f"Postgres {postgres.version}", f"{postgres.host}:{postgres.port}")
        store = services.enter_context(seaweedfs())
        learn_secrets([store.secret_key])
        watch.done("S3 (SeaweedFS)", store.endpoint)
        catalog = services.enter_context(rest_catalog(s3=store))
        watch.done("Iceberg REST catalog", catalog.uri)
        leases = services.enter_context(etcd())
        watch.done("etcd", leases.endpoint)
        spark = services.enter_context(open_session(_configuration(store, catalog)))
        watch.done(f"Spark {spark.version}", f"with Iceberg {ICEBERG_VERSION}, two cores")
        _write(spark)
        watch.done(TABLE, f"{ROWS:,} rows written, some updated, some deleted")
        _prove(spark)
        watch.done("Proof", "rows, states and sums equal what was written")
        yield


class _Watch:
    """Measures from one step to the next."""

    def __init__(self, report: Callable[[Step], None], clock: Clock) -> None:
        self._report = report
        self._clock = clock
        self._since = clock.monotonic()

    def done(self, title: str, detail: str) -> None:
        now = self._clock.monotonic()
        self._report(Step(title, detail, now - self._since))
        self._since = now


def _configuration(store: ObjectStore, catalog: RestCatalog) -> Config:
    """A document like a user's, with the secret in a variable as it should be."""
    with tempfile.TemporaryDirectory(prefix="frazil-demo-") as folder:
        document = Path(folder) / "frazil.yaml"
        document.write_text(
            _DOCUMENT.format(
                uri=catalog.uri,
                warehouse=catalog.warehouse,
                endpoint=store.endpoint,
                access_key=store.access_key,
                secret=_SECRET_VARIABLE,
            ),
            encoding="utf-8",
        )
        return load_config(document, environ={_SECRET_VARIABLE: store.secret_key}).config


def _write(spark: SparkSession) -> None:
    spark.sql("create namespace if not exists lake.demo")
    spark.sql(
        f"create table {TABLE} (id bigint, state string, price decimal(12,2)) "
        "using iceberg tblproperties ('format-version' = '3', "
        "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')"
    )
    orders = spark.range(ROWS).selectExpr(
        "id", "'open' as state", "cast(id * 0.07 as decimal(12,2)) as price"
    )
    orders.writeTo(TABLE).append()
    # The table's name is a constant of this module.
    spark.sql(f"update {TABLE} set state = 'paid' where id % {UPDATE_EVERY} = 0")  # noqa: S608
    spark.sql(f"delete from {TABLE} where id % {DELETE_EVERY} = 0")  # noqa: S608


def _prove(spark: SparkSession) -> None:
    (row,) = (
        spark.table(TABLE)
        .selectExpr(
            "count(*) as held",
            "count_if(state = 'paid') as paid",
            "cast(sum(price * 100) as bigint) as cents",
        )
        .collect()
    )
    found = Contents(rows=row["held"], paid=row["paid"], cents=row["cents"])
    expected = expected_contents()
    if found != expected:
        message = f"{TABLE} holds {found}, and {expected} was written."
        raise ServiceError(message)
