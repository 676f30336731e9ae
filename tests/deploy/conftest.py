"""The programs that check charts and rules."""

from __future__ import annotations

from tests.support.deploy.programs import compose_schema, helm, prometheus_server, promtool

__all__ = ["compose_schema", "helm", "prometheus_server", "promtool"]
