"""The names of the buffer's tables and of ours next to them, quoted for statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from frazil.model.postgres.names import quote_identifier

if TYPE_CHECKING:
    from frazil.config.models.buffer_source import BufferSection

OWN_SCHEMA: Final = "frazil_buffer"


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferRelations:
    """Tables of the buffer under the names that the configuration has, and ours."""

    schema: str = "philotes"
    events_table: str = "cdc_events"
    letters_table: str = "dead_letter_events"
    own_schema: str = OWN_SCHEMA

    @property
    def events(self) -> str:
        """The events."""
        return _qualified(self.schema, self.events_table)

    @property
    def letters(self) -> str:
        """The dead letters."""
        return _qualified(self.schema, self.letters_table)

    @property
    def claims(self) -> str:
        """Which event belongs to the open batch."""
        return _qualified(self.own_schema, "claims")

    @property
    def undecided(self) -> str:
        """Events that have a dead letter and are read again."""
        return _qualified(self.own_schema, "undecided_letters")

    @property
    def backpressure(self) -> str:
        """Whether the buffer is full, for those who write into it."""
        return _qualified(self.own_schema, "backpressure")


def relations_of(section: BufferSection) -> BufferRelations:
    """Under the names of the configuration."""
    return BufferRelations(
        schema=section.schema_name,
        events_table=section.events,
        letters_table=section.dead_letters.table,
    )


def _qualified(schema: str, table: str) -> str:
    return f"{quote_identifier(schema)}.{quote_identifier(table)}"
