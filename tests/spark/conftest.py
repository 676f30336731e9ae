"""One session for the test process, over the catalog and store that users have."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from frazil.clients.spark.jars import POSTGRES_DRIVER, SQLITE_DRIVER, ensure_jars
from frazil.clients.spark.session import open_session
from frazil.config import load_config
from tests.support.lake.catalogs import lake_of, services
from tests.support.process.jvms import QUICK_JAVA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from frazil.config import Config
    from frazil.demo.services import ObjectStore, RestCatalog

__all__ = ["lake_of", "services"]

# One shuffle partition and no adaptive planning: tests have few rows and need the same plan twice.
# The heap is bounded because the suite shares its machine with the services.
DOCUMENT = """
pipeline: tests
catalog: {{kind: rest, uri: '{uri}', warehouse: '{warehouse}'}}
storage:
  s3:
    endpoint: '{endpoint}'
    path_style: true
    access_key_id: '{access_key}'
    secret_access_key: ${{TEST_S3_SECRET}}
tables:
  - {{mirror: public.users, changelog: public.users_changelog, key: [id]}}
spark:
  master: 'local[2]'
  conf:
    spark.sql.shuffle.partitions: '1'
    spark.sql.adaptive.enabled: 'false'
    spark.driver.memory: 2g
    spark.jars: '{drivers}'
    # For the emulated Glue: its client takes credentials from the process, not from the catalog.
    spark.driver.extraJavaOptions: >-
      {java} -Daws.accessKeyId=emulated -Daws.secretAccessKey=emulated
"""


@pytest.fixture(scope="session")
def lake_config(
    tmp_path_factory: pytest.TempPathFactory, object_store: ObjectStore, s3_catalog: RestCatalog
) -> Config:
    """The configuration the session is built from."""
    document = tmp_path_factory.mktemp("lake") / "frazil.yaml"
    document.write_text(
        DOCUMENT.format(
            uri=s3_catalog.uri,
            warehouse=s3_catalog.warehouse,
            endpoint=object_store.endpoint,
            access_key=object_store.access_key,
            java=QUICK_JAVA,
            # Tests attach catalogs of every kind to this one session.
            drivers=",".join(map(str, ensure_jars(SQLITE_DRIVER, POSTGRES_DRIVER))),
        )
    )
    environ = {"TEST_S3_SECRET": object_store.secret_key}
    return load_config(document, environ=environ).config


@pytest.fixture(scope="session")
def spark(lake_config: Config) -> Iterator[SparkSession]:
    """The one session; started by the first test that uses it."""
    with open_session(lake_config) as session:
        yield session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves the sockets of ``collect()`` to the garbage collector."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(autouse=True)
def _collect_sockets() -> Iterator[None]:
    """Collected here, where the warning is expected, and not in the middle of another suite."""
    yield
    gc.collect()
