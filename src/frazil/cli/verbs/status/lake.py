"""The status from the lake, when no process answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import open_session
from frazil.model.policy import LogLevel
from frazil.pipeline.offline_status import load_offline_status
from frazil.telemetry.logs import LogSettings, configure_logs

if TYPE_CHECKING:
    from frazil.config import Config
    from frazil.pipeline.status.values import PipelineStatus
    from frazil.telemetry.redaction import Redactor


def read_lake(config: Config, redactor: Redactor) -> PipelineStatus:
    """Start a session for it, which takes seconds."""
    configure_logs(LogSettings(level=LogLevel.WARNING), redactor)
    with open_session(config) as session:
        return load_offline_status(Lake(session, config.catalog.name), config)
