"""Rules fire when they should, and every query names metrics and labels that exist."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML

from frazil.telemetry.metric_names import METRICS, Histogram
from frazil.telemetry.metric_names_foreign import FOREIGN_METRICS
from tests.support.deploy.manifests import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MONITORING = ROOT / "deploy" / "monitoring"
RULES = MONITORING / "frazil.rules.yaml"
TESTS = MONITORING / "frazil.rules.test.yaml"
DASHBOARDS = sorted((MONITORING / "dashboards").glob("*.json"))
RUNBOOKS = ROOT / "docs" / "how-to" / "runbooks"
# Every scraped series has them.
SCRAPED = {"instance", "job", "pipeline"}
METRIC = re.compile(r"\b((?:frazil|merger|kafscale_processor)_\w+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"\b(?:by|without|on|ignoring) ?\(([^)]*)\)")
LABEL = re.compile(r"(\w+) *(?:=~|!~|!=|=)")
# What a dashboard fills in.
VARIABLES = {"$pipeline": "shop", "$table": "public.users"}


def rules() -> list[dict[str, Any]]:
    document = YAML(typ="safe", pure=True).load(RULES)
    return [rule for group in document["groups"] for rule in group["rules"]]


def queries() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for file in DASHBOARDS:
        dashboard = json.loads(file.read_text(encoding="utf-8"))
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                yield f"{file.name}: {panel['title']}", target["expr"]
        for variable in dashboard["templating"]["list"]:
            if asked := re.match(r"label_values\((.*), (\w+)\)", str(variable["query"])):
                yield f"{file.name}: ${variable['name']}", f"max by ({asked[2]}) ({asked[1]})"


def known_series() -> dict[str, set[str]]:
    """The labels of every series that a process can expose."""
    series: dict[str, set[str]] = {}
    foreign = [metric for metrics in FOREIGN_METRICS.values() for metric in metrics]
    for metric in (*METRICS, *foreign):
        labels = {label.name for label in metric.labels}
        if isinstance(metric, Histogram):
            series[f"{metric.name}_bucket"] = labels | {"le"}
            series[f"{metric.name}_sum"] = series[f"{metric.name}_count"] = labels
        else:
            series[metric.name] = labels
    return series


def mistakes(query: str) -> list[str]:
    """Series and labels of a query that no process exposes."""
    series = known_series()
    found, labels = [], set(SCRAPED)
    for name, chosen in METRIC.findall(query):
        if name not in series:
            found.append(name)
            continue
        labels |= series[name]
        found += sorted(set(LABEL.findall(chosen)) - series[name] - SCRAPED)
    grouped = {label.strip() for inside in GROUPED.findall(query) for label in inside.split(",")}
    return found + sorted(grouped - labels - {""})


def test_every_query_names_metrics_and_labels_that_exist() -> None:
    asked = list(queries())
    assert len(asked) > 35
    assert {where: mistakes(query) for where, query in asked if mistakes(query)} == {}


@pytest.mark.parametrize(
    "query",
    ["frazil_lag", 'frazil_tables{state="stopped"}', "sum by (code) (frazil_tables)",
     "frazil_commit_duration_seconds"],
)  # fmt: skip
def test_a_query_that_asks_for_nothing_is_noticed(query: str) -> None:
    assert mistakes(query) != []


def test_every_query_is_one(promtool: Path, tmp_path: Path) -> None:
    recorded = []
    for number, (_, query) in enumerate(queries()):
        for variable, value in VARIABLES.items():
            query = query.replace(variable, value)  # noqa: PLW2901 - each fills in one
        recorded.append({"record": f"query:{number}", "expr": query})
    file = tmp_path / "queries.yaml"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": recorded}]}))
    run(promtool, "check", "rules", file)


def run(promtool: Path, *arguments: object) -> None:
    finished = subprocess.run(
        [promtool, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_every_alert_fires_and_stays_silent(promtool: Path) -> None:
    run(promtool, "test", "rules", TESTS)
    outcomes: dict[str, set[bool]] = {}
    for test in YAML(typ="safe", pure=True).load(TESTS)["tests"]:
        for case in test["alert_rule_test"]:
            outcomes.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))
    assert outcomes == {rule["alert"]: {True, False} for rule in rules()}


def test_every_alert_has_a_page_that_ends_in_a_command() -> None:
    pages = {rule["alert"]: ROOT / rule["annotations"]["runbook"] for rule in rules()}
    assert set(RUNBOOKS.glob("*.md")) == set(pages.values())
    for alert, page in pages.items():
        text = page.read_text(encoding="utf-8").rstrip()
        assert text.splitlines()[0].startswith(f"# {alert}"), page.name
        last = text.rpartition("```sh\n")[2]
        assert text.endswith("```"), page.name
        assert last.startswith(("frazil ", "kubectl ")), page.name


def test_dashboards_can_live_side_by_side() -> None:
    boards = [json.loads(file.read_text(encoding="utf-8")) for file in DASHBOARDS]
    assert len({board["uid"] for board in boards}) == len(boards)
    for board in boards:
        ids = [panel["id"] for panel in board["panels"]]
        assert len(ids) == len(set(ids))
