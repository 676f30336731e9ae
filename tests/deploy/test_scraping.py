"""A real Prometheus scrapes what a process serves, and an alert fires and resolves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.telemetry.metric_names import TABLE_STOPPED
from frazil.telemetry.metrics import Metrics
from frazil.telemetry.redaction import Redactor
from frazil.web.access import HostRule
from frazil.web.app import build_app
from frazil.web.readiness import Readiness
from frazil.web.server import serving
from tests.support.deploy.scraping import firing, prometheus
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path


def test_an_alert_fires_while_a_table_is_stopped_and_resolves(
    prometheus_server: Path, tmp_path: Path
) -> None:
    redactor = Redactor()
    metrics = Metrics("shop", release="1", redactor=redactor)
    app = build_app(metrics, Readiness(), redactor, hosts=HostRule(is_local=True))
    with (
        serving(app, "127.0.0.1:0") as address,
        prometheus(prometheus_server, str(address), tmp_path) as client,
    ):
        metrics.set(TABLE_STOPPED, 1, table="public.users", code="FRZ-LAK-12")
        wait_until(lambda: ("FrazilTableStopped", "public.users") in firing(client), 120)
        metrics.set(TABLE_STOPPED, 0, table="public.users", code="FRZ-LAK-12")
        wait_until(lambda: not firing(client), 120)
