"""The names of the buffer's tables and of ours next to them, quoted for statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from frazil.model.postgres.names import quote_identifier

if TYPE_CHECKING:
    from frazil.config.models.buffer_source import BufferSection

OWN_SCHEMA: Final = "frazil_buffer"
_CLAIMED: Final = """coalesce((
    select range_agg(run.ids)
    from {claimed_batches} as claimed cross join lateral unnest(claimed.ids) as run (ids)
), '{{}}'::int8multirange)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferRelations:
    """Tables of the buffer under the names that the configuration has, and ours.

    A buffer whose dead letters are switched off need not have a table of them: ``has_letters``.
    """

    schema: str = "philotes"
    events_table: str = "cdc_events"
    letters_table: str = "dead_letter_events"
    own_schema: str = OWN_SCHEMA
    has_letters: bool = True

    @property
    def events(self) -> str:
        """The events."""
        return _qualified(self.schema, self.events_table)

    @property
    def letters(self) -> str:
        """The dead letters."""
        return _qualified(self.schema, self.letters_table)

    @property
    def history(self) -> str:
        """The columns of tables at the source, as the writer may have kept them."""
        return _qualified(self.schema, "cdc_schema_history")

    @property
    def claims(self) -> str:
        """A view: which event belongs to which open batch."""
        return _qualified(self.own_schema, "claims")

    @property
    def claimed(self) -> str:
        """An expression: the ids of all open batches as ranges; computed once for a statement."""
        return _CLAIMED.format(claimed_batches=self.claimed_batches)

    @property
    def claimed_batches(self) -> str:
        """The events of each open batch, as runs of ids."""
        return _qualified(self.own_schema, "claimed_batches")

    @property
    def claimed_tables(self) -> str:
        """The tables that an open batch has events of."""
        return _qualified(self.own_schema, "claimed_tables")

    @property
    def pipelines(self) -> str:
        """How far each pipeline is."""
        return _qualified(self.own_schema, "pipelines")

    @property
    def seen_tables(self) -> str:
        """The tables that each pipeline has met events of."""
        return _qualified(self.own_schema, "seen_tables")

    @property
    def batch_numbers(self) -> str:
        """The sequence that numbers the batches of all pipelines."""
        return _qualified(self.own_schema, "batch_numbers")

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
        has_letters=section.dead_letters.enabled,
    )


def _qualified(schema: str, table: str) -> str:
    return f"{quote_identifier(schema)}.{quote_identifier(table)}"
