"""What every verb of one command line shares."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.cli.output import OutputFormat
from frazil.model.policy import LogLevel
from frazil.telemetry.logs import LogSettings, configure_logs
from frazil.telemetry.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from frazil.config import Config, LoadedConfig

# Only what a name ends with counts, and only values that can be a secret: hiding the `true` of
# some unlucky variable would shred every text.
_SECRET_NAME = re.compile(r"(?i)(?:secret|password|passwd|token|credentials?|key|sas|dsn)$")
_SHORTEST_SECRET = 8


@dataclass(frozen=True, slots=True)
class Invocation:
    """The environment a command was started in, the redactor that knows its secrets, and options.

    ``document`` is the configuration that the command line names, ``output`` the form of results.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    redactor: Redactor = field(default_factory=Redactor, repr=False)
    document: Path | None = None
    output: OutputFormat = OutputFormat.TABLE

    def learn_environment(self) -> None:
        """Teach the redactor every variable that is called like a secret and may be one."""
        self.redactor.learn(
            value
            for name, value in self.environ.items()
            if _SECRET_NAME.search(name) and len(value) >= _SHORTEST_SECRET
        )

    def load(self, document: Path | None) -> LoadedConfig:
        """Load a configuration; from here on none of its secrets can be printed."""
        from frazil.config import load_config
        from frazil.config.redaction import secret_values

        loaded = load_config(document, environ=self.environ)
        self.redactor.learn(secret_values(loaded))
        return loaded

    def load_quietly(self) -> Config:
        """The configuration of a command that prints a result: its log has warnings only."""
        config = self.load(self.document).config
        configure_logs(LogSettings(level=LogLevel.WARNING), self.redactor)
        return config
