"""Settings of the buffer database."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Literal

from pydantic import Field

from frazil.config.models.postgres_source import Dsn, TablePattern
from frazil.config.models.section import Broken, Section, defaults
from frazil.config.models.values import Count, Duration, Name, Truth

# A batch costs a commit of every table that it has events of: small ones would spend their time
# on commits. One that is cut short by a crash is read again as a whole.
CLAIM_ROWS = 500_000
POLL = timedelta(seconds=1)
# The writer of the buffer keeps processed events and dead letters for a week by default.
RETENTION = timedelta(hours=168)
# Often enough that no portion is large, and rarely enough that nobody notices.
CLEANUP = timedelta(hours=1)
# The writer's own marks; its dashboards show them.
BACKPRESSURE_HIGH = 8_000
BACKPRESSURE_LOW = 5_000
# As often as the writer itself looks.
BACKPRESSURE_CHECK = timedelta(seconds=1)


class BufferDeadLetters(Section):
    """Events that could not be written, in the buffer's own table."""

    enabled: Truth = True
    """Keep them and go on; false: the first one stops the pipeline."""
    table: Name = "dead_letter_events"
    """Name of that table, in the same schema."""
    retention: Duration = RETENTION
    """How long dead letters are kept."""


class Backpressure(Section):
    """Pending events between which the buffer counts as full."""

    enabled: Truth = True
    """Count pending events, and tell writers whether the buffer is full."""
    high: Count = BACKPRESSURE_HIGH
    """Full from this many pending events."""
    low: Count = BACKPRESSURE_LOW
    """Not full any more from this many downwards."""
    check: Duration = BACKPRESSURE_CHECK
    """How often pending events are counted."""

    def broken_rules(self) -> Iterator[Broken]:
        """The low mark is the lower one."""
        if self.low >= self.high:
            yield Broken(("low",), "must be less than high", (("high",),))


class BufferSection(Section):
    """Changes from a Postgres table of JSON events."""

    kind: Literal["buffer"]
    """buffer"""
    dsn: Dsn
    """Connection string of the buffer database."""
    schema_name: Name = Field(default="philotes", alias="schema")
    """Schema of the buffer's tables."""
    events: Name = "cdc_events"
    """Table of the events."""
    source_ids: tuple[Name, ...] = ()
    """Sources to drain; empty: all."""
    claim_rows: Count = CLAIM_ROWS
    """Events claimed at a time."""
    tables: tuple[TablePattern, ...] = Field(default=("*.*",), min_length=1)
    """Tables to drain, schema.table with * and ?; events of others stay pending."""
    exclude: tuple[TablePattern, ...] = ()
    """Tables left out of those."""
    poll: Duration = POLL
    """How often to poll for new events."""
    retention: Duration = RETENTION
    """How long processed events are kept."""
    cleanup: Duration = CLEANUP
    """How often those that are older, and expired dead letters, are deleted."""
    dead_letters: BufferDeadLetters = defaults("Events that could not be written.")
    backpressure: Backpressure = defaults("When the buffer counts as full.")
