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
KEPT = re.compile(r"\bby ?\(([^)]*)\)")
GROUPED = re.compile(r"\b(?:by|without|on|ignoring) ?\(([^)]*)\)")
LABEL = re.compile(r"(\w+) *(=~|!~|!=|=) *\"([^\"]*)\"")
LEGEND = re.compile(r"\{\{ *(?:\$labels\.)?(\w+) *\}\}")
# What a dashboard fills in.
VARIABLES = {"$pipeline": "shop", "$table": "public.users"}


def rules() -> list[dict[str, Any]]:
    document = YAML(typ="safe", pure=True).load(RULES)
    return [rule for group in document["groups"] for rule in group["rules"]]


def queries() -> Iterator[tuple[str, str, str]]:
    """Where each is, the query, and what is shown with its labels."""
    for rule in rules():
        yield rule["alert"], rule["expr"], rule["annotations"]["summary"]
    for file in DASHBOARDS:
        dashboard = json.loads(file.read_text(encoding="utf-8"))
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                shown = target.get("legendFormat", "")
                yield f"{file.name}: {panel['title']}", target["expr"], shown
        for variable in dashboard["templating"]["list"]:
            if asked := re.match(r"label_values\((.*), (\w+)\)", str(variable["query"])):
                yield f"{file.name}: ${variable['name']}", f"max by ({asked[2]}) ({asked[1]})", ""


def known_series() -> dict[str, dict[str, frozenset[str] | None]]:
    """The labels of every series that a process can expose, each with its values if few."""
    series: dict[str, dict[str, frozenset[str] | None]] = {}
    foreign = [metric for metrics in FOREIGN_METRICS.values() for metric in metrics]
    for metric in (*METRICS, *foreign):
        labels = {label.name: label.values for label in metric.labels}
        if isinstance(metric, Histogram):
            series[f"{metric.name}_bucket"] = {**labels, "le": None}
            series[f"{metric.name}_sum"] = series[f"{metric.name}_count"] = labels
        else:
            series[metric.name] = labels
    return series


def mistakes(query: str, shown: str = "") -> list[str]:
    """Series, labels and values of a query, and labels of its legend, that no process exposes."""
    series = known_series()
    found: list[str] = []
    # What one side of an operator lacks cannot be grouped by.
    common: set[str] | None = None
    for name, chosen in METRIC.findall(query):
        if name not in series:
            found.append(name)
            continue
        labels: dict[str, frozenset[str] | None] = series[name] | dict.fromkeys(SCRAPED)
        common = set(labels) if common is None else common & set(labels)
        for label, operator, value in LABEL.findall(chosen):
            values = labels.get(label, frozenset())
            is_exact = values is not None and operator in {"=", "!="} and "$" not in value
            if label not in labels or (is_exact and value not in (values or ())):
                found.append(f"{label}={value}")
    grouped = {label.strip() for inside in GROUPED.findall(query) for label in inside.split(",")}
    kept = {label for inside in KEPT.findall(query) for label in inside.replace(" ", "").split(",")}
    found += sorted(grouped - (common or set()) - {""})
    # A legend shows what the aggregation keeps.
    return found + sorted(set(LEGEND.findall(shown)) - kept - {"value"})


def test_every_query_names_metrics_and_labels_that_exist() -> None:
    asked = list(queries())
    assert len(asked) > 45
    assert {where: found for where, *each in asked if (found := mistakes(*each))} == {}


@pytest.mark.parametrize(
    "query",
    ["frazil_lag", 'frazil_tables{state="stopped"}', "sum by (code) (frazil_tables)",
     "frazil_commit_duration_seconds", 'frazil_tables{phase="halted"}',
     "sum by (table) (frazil_table_bytes) / sum by (table) (frazil_tables)"],
)  # fmt: skip
def test_a_query_that_asks_for_nothing_is_noticed(query: str) -> None:
    assert mistakes(query) != []


def test_a_legend_of_a_label_that_is_aggregated_away_is_noticed() -> None:
    assert mistakes("sum by (table) (frazil_table_files)", "{{class}}") == ["class"]
    assert mistakes("sum by (class) (frazil_table_files)", "{{class}}") == []


def test_every_query_is_one(promtool: Path, tmp_path: Path) -> None:
    recorded = []
    for number, (_, query, _) in enumerate(queries()):
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
