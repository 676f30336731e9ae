"""Settings of the buffer database."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from frazil.config.models.postgres_source import Dsn
from frazil.config.models.section import Broken, Section, defaults
from frazil.config.models.values import Count, Duration, Name

# One batch: large enough to make a decent file, small enough to bisect a poison event quickly.
CLAIM_ROWS = 10_000
POLL = timedelta(seconds=1)
# The writer of the buffer keeps processed events and dead letters for a week by default.
RETENTION = timedelta(hours=168)
# The writer's own marks; its dashboards show them.
BACKPRESSURE_HIGH = 8_000
BACKPRESSURE_LOW = 5_000


class BufferDeadLetters(Section):
    """Events that could not be written, in the buffer's own table."""

    retention: Annotated[Duration, Field(description="How long dead letters are kept.")] = RETENTION


class Backpressure(Section):
    """Pending events between which the buffer counts as full."""

    high: Annotated[Count, Field(description="Full from this many pending events.")] = (
        BACKPRESSURE_HIGH
    )
    low: Annotated[Count, Field(description="Not full any more below this many.")] = (
        BACKPRESSURE_LOW
    )

    def broken_rules(self) -> Iterator[Broken]:
        """The low mark is the lower one."""
        if self.low >= self.high:
            yield Broken(("low",), "must be less than high", (("high",),))


class BufferSection(Section):
    """Changes from a Postgres table of JSON events."""

    kind: Annotated[Literal["buffer"], Field(description="buffer")]
    dsn: Annotated[Dsn, Field(description="Connection string of the buffer database.")]
    schema_name: Annotated[
        Name, Field(alias="schema", description="Schema of the buffer's tables.")
    ] = "philotes"
    source_ids: Annotated[tuple[Name, ...], Field(description="Sources to drain; empty: all.")] = ()
    claim_rows: Annotated[Count, Field(description="Events claimed at a time.")] = CLAIM_ROWS
    poll: Annotated[Duration, Field(description="How often to poll for new events.")] = POLL
    retention: Annotated[Duration, Field(description="How long processed events are kept.")] = (
        RETENTION
    )
    dead_letters: BufferDeadLetters = defaults("Events that could not be written.")
    backpressure: Backpressure = defaults("When the buffer counts as full.")
