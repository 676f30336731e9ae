"""TLS to catalogs and stores is verified in full: who, until when, and by whom."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from frazil.clients.cache import cache_directory
from frazil.clients.iceberg.file_system import InputFiles
from frazil.clients.spark.jars import POSTGRES_DRIVER, ensure_jars
from frazil.errors import StorageError
from tests.support.faults.tls_front import (
    LOOPBACK,
    make_certificate,
    make_trust_store,
    server_without_tls,
    tls_front,
)
from tests.support.process.jvms import QUICK_JAVA

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.demo.services import ObjectStore, Postgres, RestCatalog

pytestmark = [pytest.mark.spark, pytest.mark.fault("G14", "N47")]

FRONTS = ("right", "foreign", "expired", "elsewhere")
OTHERS = (*FRONTS[1:], "plain")

# One session of its own, whose JVM trusts one authority; each catalog is tried once.
PROGRAM = """
import json, sys
from pathlib import Path
from frazil.clients.spark.session import attach_session, open_session
from frazil.config import load_config
from frazil.telemetry.redaction import Redactor

documents = json.load(sys.stdin)
outcomes = {}
with open_session(load_config(Path(documents.pop("first")), environ={}).config) as spark:
    for name, path in documents.items():
        try:
            attach_session(spark, load_config(Path(path), environ={}).config)
            spark.sql(f"create namespace if not exists {name}.tls_{name}").collect()
            spark.sql(f"create table {name}.tls_{name}.t (id int) using iceberg").collect()
            outcomes[name] = "ok"
        except Exception as error:
            outcomes[name] = str(error)
print(json.dumps(outcomes))
"""
DOCUMENT = """
pipeline: tls
catalog: {{name: {name}, {catalog}}}
storage: {{s3: {{endpoint: '{endpoint}', path_style: true, access_key_id: '{key}',
  secret_access_key: '{secret}'}}}}
tables: [{{mirror: a.b, changelog: a.c, key: [id]}}]
spark:
  master: 'local[1]'
  conf:
    spark.driver.memory: 1g
    spark.jars: '{drivers}'
    spark.driver.extraJavaOptions: >-
      {java} -Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword=truststore
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def outcomes(
    folder: Path, postgres: Postgres, object_store: ObjectStore, s3_catalog: RestCatalog
) -> Iterator[tuple[dict[str, str], list[bytes]]]:
    """What became of each kind of catalog and store behind each kind of certificate."""
    authority = make_certificate(folder, "authority")
    certificates = {
        "right": make_certificate(folder, "right", issuer=authority),
        "foreign": make_certificate(folder, "foreign"),
        "expired": make_certificate(folder, "expired", issuer=authority, is_expired=True),
        "elsewhere": make_certificate(folder, "elsewhere", issuer=authority, address="127.0.0.2"),
    }
    store = make_trust_store(folder, authority)
    heard: list[bytes] = []
    store_port = urlsplit(object_store.endpoint).port or 0
    rest_port = urlsplit(s3_catalog.uri).port or 0
    with ExitStack() as stack:

        def fronts(port: int, *, is_postgres: bool = False) -> dict[str, int]:
            return {
                name: stack.enter_context(tls_front(port, each, is_postgres=is_postgres))
                for name, each in certificates.items()
            }

        sql = fronts(postgres.port, is_postgres=True)
        sql["plain"] = stack.enter_context(server_without_tls(heard))
        rest = {**fronts(rest_port), "plain": rest_port}
        s3 = {**fronts(store_port), "plain": store_port}
        sign_in = f"{postgres.user}:{postgres.password}"
        catalogs = {
            **{
                f"sql_{name}": f"kind: sql, uri: 'postgresql://{sign_in}@{LOOPBACK}:{port}/"
                f"{postgres.database}?sslmode=require', warehouse: 'file://{folder}/wh'"
                for name, port in sql.items()
            },
            **{
                f"rest_{name}": f"kind: rest, uri: 'https://{LOOPBACK}:{port}', "
                f"warehouse: '{s3_catalog.warehouse}', token: t"
                for name, port in rest.items()
            },
            **{
                f"s3_{name}": f"kind: sql, uri: 'sqlite:///{folder}/{name}.db', "
                f"warehouse: 's3://{object_store.bucket}/tls-{name}'"
                for name in s3
            },
        }
        documents = {}
        for name, catalog in catalogs.items():
            kind, _, front = name.partition("_")
            endpoint = f"https://{LOOPBACK}:{s3[front]}" if kind == "s3" else object_store.endpoint
            documents[name] = folder / f"{name}.yaml"
            documents[name].write_text(
                DOCUMENT.format(
                    name=name,
                    catalog=catalog,
                    endpoint=endpoint,
                    key=object_store.access_key,
                    secret=object_store.secret_key,
                    java=QUICK_JAVA,
                    store=store,
                    drivers=",".join(map(str, ensure_jars(POSTGRES_DRIVER))),
                )
            )
        asked = {name: str(path) for name, path in documents.items()}
        finished = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            input=json.dumps({"first": asked["s3_right"], **asked}),
            env={**os.environ, "HOME": str(folder), "FRAZIL_CACHE": str(cache_directory())},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr
        yield json.loads(finished.stdout), heard


@pytest.mark.parametrize("kind", ["sql", "rest", "s3"])
def test_a_certificate_that_fits_is_taken(
    outcomes: tuple[dict[str, str], list[bytes]], kind: str
) -> None:
    assert outcomes[0][f"{kind}_right"] == "ok"


@pytest.mark.parametrize("kind", ["sql", "rest", "s3"])
@pytest.mark.parametrize("front", OTHERS)
def test_any_other_is_refused(
    outcomes: tuple[dict[str, str], list[bytes]], kind: str, front: str
) -> None:
    outcome = outcomes[0][f"{kind}_{front}"]
    assert outcome != "ok"
    words = "SSL|TLS|certificate|PKIX|hostname|subject alternative|handshake"
    assert re.search(words, outcome, re.IGNORECASE), outcome


def test_a_catalog_that_refuses_tls_gets_no_password(
    outcomes: tuple[dict[str, str], list[bytes]],
) -> None:
    assert b"".join(outcomes[1]) == b""


def test_tasks_refuse_a_store_with_an_untrusted_certificate(
    folder: Path, object_store: ObjectStore
) -> None:
    certificate = make_certificate(folder, "for tasks")
    port = urlsplit(object_store.endpoint).port or 0
    with tls_front(port, certificate, is_postgres=False) as listening:
        given = {**object_store.io_properties(), "s3.endpoint": f"https://{LOOPBACK}:{listening}"}
        with pytest.raises(StorageError):
            InputFiles(given).sizes(f"s3://{object_store.bucket}/tls")
