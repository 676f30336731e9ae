"""The source that a configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.config import table_settings
from frazil.pipeline.tables.captured_names import LakeNames
from frazil.sources.registry import find_kind

if TYPE_CHECKING:
    from frazil.config import Config, TableSettings
    from frazil.sources.kind import SourceKind


def configured_source(config: Config, names: LakeNames | None = None) -> SourceKind:
    """The source; ConfigError if the configuration names none."""
    known = names or LakeNames(config)

    def settings(table: str) -> TableSettings:
        return table_settings(config, known.of(table).listed_as)

    return find_kind(config, settings)
