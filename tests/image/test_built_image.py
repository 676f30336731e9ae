"""The image itself, after ``make test-image`` has built it: what is in it, and that it runs."""

from __future__ import annotations

import json
import re
import signal
from importlib.metadata import distributions
from typing import TYPE_CHECKING

import pytest

from frazil.clients.spark.jars import PRODUCTION_JARS
from frazil.version import __version__
from tests.support.deploy.container import Container, stop
from tests.support.postgres.access import database_on
from tests.support.process.pipeline_process import free_port
from tests.support.waiting import wait_until
from tools.deploy import build_image

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.demo.services import ObjectStore, Postgres, RestCatalog

pytestmark = pytest.mark.skipif(
    not build_image.is_built(), reason="the image is not built; make test-image says why"
)

DOCUMENT = """
pipeline: shop
catalog: {{kind: rest, uri: '{uri}', warehouse: '{warehouse}'}}
storage:
  s3: {{endpoint: '{endpoint}', region: {region}, path_style: true,
       access_key_id: '${{S3_KEY}}', secret_access_key: '${{S3_SECRET}}'}}
source:
  kind: postgres
  dsn: ${{DATABASE_URL}}
  tables: ['public.*']
  spool: {{dir: /var/lib/frazil/spool}}
mirror: {{index: {{cache_dir: /var/lib/frazil/cache}}}}
spark: {{master: 'local[2]', conf: {{spark.driver.memory: 1g}}}}
"""


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    with build_image.mounted() as root:
        volumes = tmp_path_factory.mktemp("volumes")
        found = Container(root, build_image.configuration(), volumes)
        found.prepare()
        yield found


def test_an_engine_learns_what_it_needs(container: Container) -> None:
    found = container.configuration
    assert found["User"] == "10001:10001"
    assert found["Entrypoint"][:2] == ["tini", "--"]
    assert found["Cmd"] == ["run", "-c", "/etc/frazil/frazil.yaml"]
    assert found["StopSignal"] == "SIGTERM"
    assert set(found["Volumes"]) == {"/var/lib/frazil", "/tmp"}
    assert set(found["ExposedPorts"]) == {"9093/tcp"}
    labels = {
        key.removeprefix("org.opencontainers.image."): text for key, text in found["Labels"].items()
    }
    assert (labels["title"], labels["version"]) == ("frazil", __version__)
    assert labels["licenses"] == "Apache-2.0"


def test_it_lists_what_is_in_it(container: Container) -> None:
    bill = json.loads((container.root / "opt/frazil/sbom.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    listed = {(each["name"], each["version"]) for each in bill["components"]}
    assert {(jar.name, jar.revision) for group in PRODUCTION_JARS for jar in group} <= listed
    (site,) = container.root.glob("opt/frazil/venv/lib/python3*/site-packages")
    installed = {
        name for each in distributions(path=[str(site)]) if (name := each.name) != "frazil"
    }
    assert len(installed) > 40
    assert {re.sub(r"[-_.]+", "-", name).lower() for name in installed} <= {
        name for name, _ in listed
    }


def test_nobody_writes_but_to_the_volumes(container: Container) -> None:
    folders = "/ /opt/frazil /etc/frazil /var/lib/frazil /tmp"
    tried = f"for each in {folders}; do touch $each/x 2>/dev/null && echo $each; done"
    said = container.run("sh", "-c", f"id -u; {tried}").stdout.split()
    assert said == ["10001", "/var/lib/frazil", "/tmp"]
    status = container.run("cat", "/proc/self/status").stdout
    assert re.search(r"CapBnd:\s0+$", status, re.MULTILINE)
    assert re.search(r"NoNewPrivs:\s1$", status, re.MULTILINE)


def test_it_fills_a_lake_and_ends_when_it_is_asked_to(
    container: Container,
    postgres: Postgres,
    object_store: ObjectStore,
    s3_catalog: RestCatalog,
    tmp_path: Path,
) -> None:
    document = DOCUMENT.format(
        uri=s3_catalog.uri, warehouse=s3_catalog.warehouse,
        endpoint=object_store.endpoint, region=object_store.region,
    )  # fmt: skip
    (container.volumes / "config" / "frazil.yaml").write_text(document)
    with database_on(postgres, "image") as database:
        database.run(
            "create table users (id int primary key, name text)",
            "insert into users select i, 'n' || i from generate_series(1, 500) i",
        )
        given = {
            "DATABASE_URL": database.dsn.value,
            "S3_KEY": object_store.access_key,
            "S3_SECRET": object_store.secret_key,
            "CONFIG_FILE": "/etc/frazil/frazil.yaml",
            "FRAZIL__TELEMETRY__LISTEN": f"127.0.0.1:{free_port()}",
        }
        once = container.frazil("run", "--once", **given)
        assert once.returncode == 0, once.stdout + once.stderr
        verified = container.frazil("verify", **given)
        assert verified.returncode == 0, verified.stdout + verified.stderr

        log = tmp_path / "log"
        assert container.check_health(**given) != 0
        live = container.start(log, **given)
        try:
            wait_until(lambda: live.poll() is not None or container.check_health(**given) == 0, 300)
            assert live.poll() is None, log.read_text()[-3000:]
            assert stop(live, signal.SIGTERM) == 0, log.read_text()[-3000:]
        finally:
            live.kill()
