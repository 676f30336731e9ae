"""A real Prometheus over what a process serves."""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx

from tests.support.deploy.manifests import ROOT
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RULES = ROOT / "deploy" / "monitoring" / "frazil.rules.yaml"
LISTENS = re.compile(r'msg="Listening on".*?address=127\.0\.0\.1:(\d+)')


@contextmanager
def prometheus(program: Path, target: str, folder: Path) -> Iterator[httpx.Client]:
    """One that scrapes the target and evaluates our rules twice a second, without their waits."""
    (folder / "rules.yaml").write_text(re.sub(r"\n +for: \w+", "", RULES.read_text("utf-8")))
    (folder / "prometheus.yml").write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
                "rule_files": ["rules.yaml"],
                "scrape_configs": [
                    {"job_name": "frazil", "static_configs": [{"targets": [target]}]}
                ],
            }
        )
    )
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [program, f"--config.file={folder / 'prometheus.yml'}",
             f"--storage.tsdb.path={folder / 'data'}", "--web.listen-address=127.0.0.1:0"],
            stderr=log,
        )  # fmt: skip
    try:
        wait_until(lambda: port_in(folder / "log") is not None, 60)
        address = f"http://127.0.0.1:{port_in(folder / 'log')}"
        with httpx.Client(base_url=address, trust_env=False, timeout=60) as client:
            yield client
    finally:
        process.terminate()
        process.wait(30)


def port_in(log: Path) -> str | None:
    """Where it listens, as it logs; the port is its own choice."""
    found = LISTENS.search(log.read_text(encoding="utf-8"))
    return found[1] if found else None


def firing(client: httpx.Client) -> set[tuple[str, str]]:
    """The alerts that fire, each with its table."""
    answer = client.get("/api/v1/alerts")
    alerts: list[dict[str, Any]] = answer.json()["data"]["alerts"] if answer.is_success else []
    return {
        (each["labels"]["alertname"], each["labels"].get("table", ""))
        for each in alerts
        if each["state"] == "firing"
    }
