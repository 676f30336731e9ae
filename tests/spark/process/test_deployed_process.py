"""What the chart tells Kubernetes to start, started: probes, a scrape, an alert, the end."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import pytest
from ruamel.yaml import YAML

from frazil.clients.cache import cache_directory
from tests.support.deploy.manifests import CHART, objects_of, render, workloads
from tests.support.deploy.programs import helm, prometheus_server
from tests.support.deploy.scraping import firing, prometheus
from tests.support.postgres.access import database_on
from tests.support.process.jvms import QUICK_JAVA
from tests.support.process.pipeline_process import ENVIRONMENT, PipelineProcess, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.demo.services import Postgres, RestCatalog
    from tests.support.postgres.access import Database

__all__ = ["helm", "prometheus_server"]

pytestmark = pytest.mark.spark

TABLE = "public.users"
ROWS = 100
# Small data on a small machine, soon.
QUICK = {
    "ingest": {"interval": "1s"},
    "merge": {"interval": "2s"},
    "spark": {
        "master": "local[2]",
        "conf": {
            "spark.sql.shuffle.partitions": "1",
            "spark.driver.extraJavaOptions": QUICK_JAVA,
        },
    },
}


class Deployed:
    """The container of the chart's Deployment as a process of this machine."""

    def __init__(self, objects: list[dict[str, Any]], folder: Path) -> None:
        (self.workload,) = workloads(objects)
        (self.document,) = (each["data"] for each in objects if each["kind"] == "ConfigMap")
        self.folder = folder
        (port,) = self.workload.container["ports"]
        self.ports = {port["name"]: free_port()}
        # What differs between a pod and this machine.
        self._places = {
            "/etc/frazil": str(folder),
            "/var/lib/frazil": str(folder / "data"),
            f"0.0.0.0:{port['containerPort']}": f"127.0.0.1:{self.ports[port['name']]}",
        }
        (folder / "data").mkdir()

    def start(self, database: Database, catalog: RestCatalog) -> PipelineProcess:
        for name, text in self.document.items():
            document = YAML(typ="safe", pure=True).load(text)
            document["catalog"] |= {"uri": catalog.uri, "warehouse": catalog.warehouse}
            (self.folder / name).write_text(json.dumps(document))
        container = self.workload.container
        given = {each["name"]: self._here(each["value"]) for each in container["env"]}
        secrets = {"DATABASE_URL": database.dsn.value, "CATALOG_TOKEN": "sample"}
        # The image has a cache of its own, too.
        cache = {"FRAZIL_CACHE": str(cache_directory())}
        (port,) = self.ports.values()
        environment = ENVIRONMENT | cache | given | secrets
        process = PipelineProcess(self.folder, port, environment=environment)
        process.start(*map(self._here, container["args"]))
        return process

    def _here(self, text: str) -> str:
        for place, ours in self._places.items():
            text = text.replace(place, ours)
        return text

    def probe(self, name: str) -> str:
        """The path that Kubernetes asks, at a port that the container has."""
        asked = self.workload.container[name]["httpGet"]
        assert asked["port"] in self.ports
        path: str = asked["path"]
        return path


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Iterator[Database]:
    with database_on(postgres, "deployed") as found:
        found.run(
            f"create table {TABLE} (id int primary key, name text)",
            f"insert into {TABLE} select i, 'n' || i from generate_series(1, {ROWS}) i",
        )
        yield found


@pytest.fixture(scope="module")
def deployed(helm: Path, tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    folder = tmp_path_factory.mktemp("deployed")
    quick = folder / "quick.yaml"
    quick.write_text(json.dumps({"config": QUICK}))
    return Deployed(objects_of(render(helm, CHART / "ci" / "run-values.yaml", quick)), folder)


@pytest.fixture(scope="module")
def process(
    deployed: Deployed, database: Database, file_catalog: RestCatalog
) -> Iterator[PipelineProcess]:
    found = deployed.start(database, file_catalog)
    try:
        yield found
    finally:
        found.end()


def answers(process: PipelineProcess, path: str) -> bool:
    try:
        process.page(path)
    except (HTTPError, OSError):
        return False
    return True


def test_the_rendered_command_answers_its_probes(
    deployed: Deployed, process: PipelineProcess
) -> None:
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        path = deployed.probe(name)
        process.wait_until(lambda path=path: answers(process, path), f"{name} at {path}")  # type: ignore[misc]


def merged_rows(process: PipelineProcess) -> float | None:
    labels = {"pipeline": "shop", "table": TABLE, "action": "insert"}
    return process.metric("frazil_merge_rows_total", **labels)


def test_prometheus_sees_a_table_stop_and_its_remedy_resolve_the_alert(
    process: PipelineProcess, database: Database, prometheus_server: Path, tmp_path: Path
) -> None:
    target = process.address.removeprefix("http://")
    stopped = ("FrazilTableStopped", TABLE)
    with prometheus(prometheus_server, target, tmp_path) as client:
        process.wait_until(lambda: merged_rows(process) == ROWS, "merged")
        assert firing(client) == set()
        database.run(
            f"alter table {TABLE} alter column name type bytea using convert_to(name, 'UTF8')",
            f"update {TABLE} set name = '' where id = 1",
        )
        process.wait_until(lambda: stopped in firing(client), "firing")
        mended = process.command("resync", TABLE)
        assert mended.returncode == 0, mended.stderr
        process.wait_until(lambda: not firing(client), "resolved")


def test_sigterm_ends_it_with_0_before_kubernetes_would_kill_it(
    deployed: Deployed, process: PipelineProcess
) -> None:
    running = process.process
    assert running is not None
    process.send(signal.SIGTERM)
    grace = deployed.workload.spec["terminationGracePeriodSeconds"]
    assert running.wait(grace) == 0, process.output_tail()
