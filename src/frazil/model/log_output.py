"""How log lines are written, as the configuration spells it."""

from __future__ import annotations

import logging
from enum import StrEnum


class LogFormat(StrEnum):
    """The form of log lines; ``auto`` is text on a terminal and JSON elsewhere."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """The severity from which on log lines are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """The same level as a number of the standard library."""
        return logging.getLevelNamesMapping()[self.name]
