"""KafScale as a kind of source; its records cannot be read yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.config.models.kafscale_source import KafscaleSection
from frazil.sources.kind import ListedTable, SourceKind

if TYPE_CHECKING:
    from frazil.config import Config
    from frazil.model.marker import Position
    from frazil.sources.kind import TableSettingsOf


class KafscaleKind(SourceKind):
    """Topics of one cluster."""

    name = "kafscale"

    def __init__(self, config: Config, tables: TableSettingsOf) -> None:
        super().__init__(config, tables)
        if not isinstance(config.source, KafscaleSection):
            raise TypeError(config.source)
        self._section = config.source

    def listed_tables(self) -> tuple[ListedTable, ...]:
        """The tables that topics become."""
        return tuple(
            ListedTable(source=topic.topic, changelog=changelog, mirror=topic.mirror)
            for topic in self._section.topics
            # One of them, as the section's rules say.
            if (changelog := topic.changelog or topic.table) is not None
        )

    def position_problem(self, position: Position) -> str | None:
        """A position is an offset by partition."""
        if isinstance(position, str) or not position:
            return "a position in KafScale is a JSON object of offsets"
        return None
