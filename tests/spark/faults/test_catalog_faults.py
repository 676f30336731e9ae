"""Ingest, merge and index over a REST catalog that answers with what was, or lends for a while.

The catalog and the store are real ones behind proxies.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.request import urlopen
from uuid import uuid4

import pytest

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from tests.support.faults.proxy import Answer, HttpProxy, Rewrite
from tests.support.ingest.mirrored_world import World, asking

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import ObjectStore, RestCatalog

pytestmark = [pytest.mark.spark, pytest.mark.services]

FOR_EVER = 10_000
EXPIRED = Answer(
    403,
    b"<?xml version='1.0'?><Error><Code>ExpiredToken</Code><Message>no</Message></Error>",
    {"Content-Type": "application/xml"},
)

KEYS = (
    "{{endpoint: '{endpoint}', path_style: true, access_key_id: '{key}', "
    "secret_access_key: '{secret}'}}"
)
DOCUMENT = """
pipeline: faults
catalog:
  name: {name}
  kind: rest
  uri: '{uri}'
  warehouse: '{warehouse}'
  properties: {{s3.retry.num-retries: '1', s3.retry.min-wait-ms: '50', s3.retry.max-wait-ms: '200'}}
storage: {{s3: {s3}}}
tables: [{{mirror: a.b, changelog: a.c, key: [id]}}]
"""


def world_of(spark: SparkSession, catalog: RestCatalog, uri: str, folder: Path, s3: str) -> World:
    name = f"f_{uuid4().hex[:8]}"
    document = folder / "frazil.yaml"
    document.write_text(DOCUMENT.format(name=name, uri=uri, warehouse=catalog.warehouse, s3=s3))
    attach_session(spark, load_config(document, environ={}).config)
    return World(spark, name, folder, namespace=f"shop_{name}")


# --- a catalog that answers with what was (C7) ---


@pytest.mark.fault("C7")
@pytest.mark.parametrize(
    "tables",
    [
        pytest.param(["users_changelog"], marks=pytest.mark.deep),
        ["ledger"],
        pytest.param(["users"], marks=pytest.mark.deep),
        ["users_changelog", "ledger", "users"],
    ],
    ids=["the changelog", "the ledger", "the mirror", "everything"],
)
def test_a_catalog_that_answers_with_what_was_loses_and_doubles_nothing(
    spark: SparkSession,
    s3_catalog: RestCatalog,
    object_store: ObjectStore,
    tmp_path: Path,
    tables: list[str],
) -> None:
    """A cache before the catalog: reads are old, commits meet the table as it is."""
    s3 = KEYS.format(
        endpoint=object_store.endpoint, key=object_store.access_key, secret=object_store.secret_key
    )
    with HttpProxy(s3_catalog.uri) as proxy:
        world = world_of(spark, s3_catalog, proxy.url, tmp_path, s3)
        world.change()
        assert world.work() is None
        stale = {}
        for table in tables:
            path = f"/v1/namespaces/{world.namespace}/tables/{table}"
            with urlopen(f"{s3_catalog.uri}{path}") as reply:  # noqa: S310 - on this machine
                stale[path] = reply.read()
        world.change()
        assert world.work() is None
        world.change()
        for path, body in stale.items():
            old = Answer(200, body, {"Content-Type": "application/json"})
            proxy.script(asking("GET", f"{path}(?:[?]|$)"), *[old] * FOR_EVER)
        world.work()
        world.change()
        world.work()
        answered = [each for each in proxy.requests if isinstance(each.fault, Answer)]
        proxy.heal()
        assert answered, "nothing stale was answered"
        assert world.work() is None
        world.check()


# --- credentials that the catalog lends for a while (C6) ---


FOLDERS = ("data", "metadata", "_index")


@dataclass
class Lender:
    """Every loan goes through a proxy of its own, which refuses once the loan has ended."""

    store: ObjectStore
    stack: ExitStack
    in_config: bool
    loans: list[HttpProxy] = field(default_factory=list)

    def lend(self, body: bytes) -> bytes:
        # Reports of metrics are answered with nothing.
        answer = json.loads(body or b"{}")
        if "metadata" not in answer:
            return body
        proxy = self.stack.enter_context(HttpProxy(self.store.endpoint, keep_host=True))
        self.loans.append(proxy)
        loan = {
            "s3.endpoint": proxy.url,
            "s3.path-style-access": "true",
            "client.region": self.store.region,
            "s3.access-key-id": self.store.access_key,
            "s3.secret-access-key": self.store.secret_key,
            # Said to expire soon; when it does is up to the test.
            "s3.session-token-expires-at-ms": str(int(time.time() * 1000) + 1000),
        }
        if self.in_config:
            answer["config"] = loan
        else:
            location = answer["metadata"]["location"]
            answer["storage-credentials"] = [
                {"prefix": location, "config": loan | {"s3.endpoint": "http://127.0.0.1:1"}},
                # Each file is reached by the longest prefix of its own place.
                *({"prefix": f"{location}/{each}", "config": loan} for each in FOLDERS),
            ]
        return json.dumps(answer).encode()

    def end_all(self) -> None:
        """All that was lent so far has expired."""
        for proxy in self.loans:
            proxy.script(lambda *_: True, *[EXPIRED] * FOR_EVER)


@pytest.fixture(params=[True, False], ids=["in the config", "as storage credentials"])
def lender(request: pytest.FixtureRequest, object_store: ObjectStore) -> Iterator[Lender]:
    with ExitStack() as stack:
        yield Lender(object_store, stack, in_config=request.param)


@pytest.mark.fault("C6")
def test_a_run_goes_on_after_lent_credentials_have_expired(
    spark: SparkSession, s3_catalog: RestCatalog, lender: Lender, tmp_path: Path
) -> None:
    with HttpProxy(s3_catalog.uri) as proxy:
        proxy.script(asking("GET|POST", "/tables"), *[Rewrite(lender.lend)] * FOR_EVER)
        world = world_of(spark, s3_catalog, proxy.url, tmp_path, "{}")
        ingester, lake = world.new_ingester(), Lake(spark, world.catalog)
        for _ in range(3):
            world.change()
            world.ingest(ingester)
            world.merge(lake)
            lender.end_all()
        world.check()
