"""The programs that check charts and rules, as fixtures; ``make test`` fetches them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tools.deploy import deploy_tools

if TYPE_CHECKING:
    from pathlib import Path


def _required(program: Path | None, name: str) -> Path:
    if program is None:
        message = f"{name} could not be fetched on this machine; `make test-deploy` says why"
        # Where everything is to be tested, a skipped test would hide something.
        if os.environ.get("FRAZIL_NEEDS_DEPLOY_TOOLS"):
            pytest.fail(message)
        pytest.skip(message)
    return program


@pytest.fixture(scope="session")
def helm() -> Path:
    """Helm, with Kubernetes' schemas beside it."""
    return _required(deploy_tools.helm(), "helm")


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Prometheus' checker of rules."""
    return _required(deploy_tools.promtool(), "promtool")


@pytest.fixture(scope="session")
def prometheus_server() -> Path:
    """Prometheus itself."""
    return _required(deploy_tools.prometheus(), "Prometheus")


@pytest.fixture(scope="session")
def compose_schema() -> Path:
    """The schema of Compose's files."""
    return _required(deploy_tools.compose_schema(), "the schema of Compose")
