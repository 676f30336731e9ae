"""What a commit costs at an object store, in requests; docs/how-to/production.md has the figures.

All requests of driver and tasks pass a proxy, and the catalog is a database, so that metadata files
are among them.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from frazil.hooks import SystemClock
from tests.support.faults.proxy import HttpProxy
from tests.support.postgres.access import database_on
from tests.support.process.jvms import QUICK_JAVA
from tests.support.process.pipeline_process import PipelineProcess, free_port

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.demo.services import ObjectStore, Postgres
    from tests.support.faults.proxy import Exchange

pytestmark = [pytest.mark.deep, pytest.mark.spark]

DOCUMENT = """
pipeline: {name}
catalog: {{kind: sql, uri: 'sqlite:///catalog.db', warehouse: 's3://{bucket}/{name}'}}
storage: {{s3: {{endpoint: '{endpoint}', path_style: true, access_key_id: '{key}',
  secret_access_key: '{secret}'}}}}
source: {{kind: postgres, dsn: '{dsn}', spool: {{dir: 's3://{bucket}/{name}/spool'}}}}
mirror: {{format_version: {version}}}
ingest: {{interval: 500ms}}
merge: {{interval: 500ms}}
maintenance: {{enabled: false}}
telemetry: {{listen: '127.0.0.1:{port}', log: {{format: json}}}}
spark:
  master: local[2]
  conf: {{spark.driver.memory: 1g, spark.driver.extraJavaOptions: '{java}'}}
"""
ROUNDS = 7
# The first ones load what later ones have.
WARM_UP = 2
# One task each; more tasks have more data files, and each of those is one PUT.
CHANGES = (
    "update item set n = n + 1 where id % 100 = {round}",
    "delete from item where id % 1000 = {round}",
    "insert into item select i, 'late', 0 from generate_series({first}, {first} + 9) i",
)
# Half as much again as was measured: a commit that begins to cost more should be noticed.
MOST = {"changelog": 27, "ledger": 17, "spool": 12}
# In format 2 each data file that is touched has a delete file of its own, and every round adds one.
MOST_OF_MIRROR = {3: 42, 2: 99}


def part_of(exchange: Exchange, name: str) -> str:
    """Whose object it is."""
    path = exchange.path.partition("?")[0]
    for part, pattern in (
        ("spool", rf"/{name}/spool"),
        ("ledger", r"_ledger/"),
        ("changelog", r"_changelog/"),
        ("mirror", r"/item/"),
    ):
        if re.search(pattern, path):
            return part
    return f"{exchange.method} {path}"


def price_of(exchange: Exchange) -> str:
    """Stores charge ten times as much for what writes or lists."""
    is_list = exchange.method == "GET" and "list-type" in exchange.path
    if exchange.method == "DELETE" or "delete" in exchange.path.partition("?")[2]:
        return "free"
    return "write or list" if is_list or exchange.method in {"PUT", "POST"} else "read"


def count(exchanges: tuple[Exchange, ...], name: str) -> Counter[tuple[str, str]]:
    return Counter((part_of(each, name), price_of(each)) for each in exchanges)


def merges_of(pipeline: PipelineProcess) -> int:
    return len(pipeline.events("merge committed"))


@pytest.mark.parametrize("version", [3, 2])
def test_a_commit_costs_few_requests(
    version: int, postgres: Postgres, object_store: ObjectStore, tmp_path: Path
) -> None:
    name, port = f"r_{uuid4().hex[:8]}", free_port()
    rounds: list[Counter[tuple[str, str]]] = []
    with (
        database_on(postgres, name) as database,
        HttpProxy(object_store.endpoint, keep_host=True) as proxy,
    ):
        database.run(
            "create table item (id int primary key, name text, n int)",
            "insert into item select i, 'item ' || i, 0 from generate_series(0, 9999) i",
        )
        words: dict[str, Any] = {
            "name": name,
            "bucket": object_store.bucket,
            "endpoint": proxy.url,
            "key": object_store.access_key,
            "secret": object_store.secret_key,
            "dsn": database.dsn.value,
            "version": version,
            "port": port,
            "java": QUICK_JAVA,
        }
        (tmp_path / "frazil.yaml").write_text(DOCUMENT.format(**words))
        pipeline = PipelineProcess(tmp_path, port)
        try:
            pipeline.start()
            pipeline.wait_until(lambda: merges_of(pipeline) == 1, "copied")
            for number in range(ROUNDS):
                idle(pipeline, proxy)
                before = len(proxy.requests)
                first = 100_000 + 100 * number
                # One transaction, so that one batch has it.
                statements = (each.format(round=number, first=first) for each in CHANGES)
                database.run("begin;" + ";".join(statements) + ";commit")
                wanted = number + 2
                pipeline.wait_until(lambda: merges_of(pipeline) == wanted, "merged")  # noqa: B023
                idle(pipeline, proxy)
                rounds.append(count(proxy.requests[before:], name))
            before = len(proxy.requests)
            SystemClock().sleep(20)
            quiet = len(proxy.requests) - before
            pipeline.send(signal.SIGTERM)
            assert pipeline.wait() == 0, pipeline.output_tail()
        finally:
            pipeline.end()
    report(version, rounds[WARM_UP:], quiet)
    totals = Counter[str]()
    for (part, _), requests in rounds[-1].items():
        totals[part] += requests
    most = {**MOST, "mirror": MOST_OF_MIRROR[version]}
    assert set(totals) == set(most)
    assert all(totals[part] <= bound for part, bound in most.items()), totals


def idle(pipeline: PipelineProcess, proxy: HttpProxy) -> None:
    """Nothing was asked for a while: what the last change caused is over."""
    clock = SystemClock()
    seen, since = len(proxy.requests), clock.monotonic()
    while clock.monotonic() < since + 3:
        pipeline.require_alive()
        clock.sleep(0.1)
        if len(proxy.requests) != seen:
            seen, since = len(proxy.requests), clock.monotonic()


def report(version: int, rounds: list[Counter[tuple[str, str]]], quiet: int) -> None:
    print(f"\nformat {version}, median and most of {len(rounds)} rounds")  # noqa: T201
    for key in sorted({each for counted in rounds for each in counted}):
        found = [counted[key] for counted in rounds]
        print(f"  {key[0]:10} {key[1]:14} {median(found):5.0f} {max(found):5d}")  # noqa: T201
    print(f"  without changes, in 20 s: {quiet}")  # noqa: T201
