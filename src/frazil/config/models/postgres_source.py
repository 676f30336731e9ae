"""Settings of the Postgres source, and the connection string it shares with the buffer."""

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from frazil.config.models.naming import PipelineTemplate
from frazil.config.models.section import Section, defaults
from frazil.config.models.values import (
    Count,
    Duration,
    Location,
    Name,
    Secret,
    Size,
    Truth,
    matching,
    one_of,
    refuse,
)
from frazil.model.policy import OnWiden

# What a busy database writes in minutes, and what a small disk can still spare.
SPOOL_BYTES = 10 * 2**30
# A paused table may pin this much WAL before the others take precedence.
HELD_WAL_BYTES = 10 * 2**30
# A server decodes this in seconds; ten times as much keeps every restart busy for minutes.
REREAD_BYTES = 2**30
# Often enough that an idle database pins at most one WAL segment or two.
HEARTBEAT = timedelta(seconds=60)
# A copy reads with four cores of the source at most, unless its owner allows more.
COPY_CONNECTIONS = 4

_URI = re.compile(r"postgres(?:ql)?://\S+")
_KEYWORDS = re.compile(r"(?s)\s*[a-z_]+\s*=.*")


def _check_dsn(dsn: SecretStr) -> SecretStr:
    text = dsn.get_secret_value()
    if _URI.fullmatch(text) is None and _KEYWORDS.fullmatch(text) is None:
        raise refuse("must be postgresql://user:password@host/database or host=… dbname=…")
    return dsn


Dsn = Annotated[Secret, AfterValidator(_check_dsn)]

TablePattern = Annotated[
    Name,
    matching(r"[^.\s]+\.[^.\s]+", "must be schema.table, where * and ? stand for other characters"),
]


class OnSlotLost(StrEnum):
    """What to do when the server has dropped or invalidated the slot."""

    STOP = "stop"
    RESYNC = "resync"


class Publication(Section):
    """The publication the slot reads through."""

    name: PipelineTemplate = "{pipeline}_frazil"
    """Its name; may use {pipeline}."""
    create: Truth = True
    """Create and alter it when needed."""


class Spool(Section):
    """Where the stream rests until it is decoded."""

    dir: Location = "spool"
    """Directory, or an object store prefix on a cluster."""
    max_bytes: Size = SPOOL_BYTES
    """Reading pauses above this."""


class OnStoppedTable(Section):
    """How long a paused table may hold back the slot: until the first of these is reached."""

    hold: Size = HELD_WAL_BYTES
    """WAL kept for a paused table; past it that table needs a resync."""
    reread: Size = Field(
        default=REREAD_BYTES,
        description="WAL that every start reads again because of a paused table; past it that "
        "table needs a resync.",
    )

    @property
    def most_bytes(self) -> int:
        """What the source keeps for a paused table."""
        return min(self.hold, self.reread)


class Copy(Section):
    """The initial copy."""

    connections: Count = COPY_CONNECTIONS
    """Connections that read in parallel."""


class PostgresSection(Section):
    """Changes from a Postgres database, through a logical replication slot."""

    kind: Literal["postgres"]
    """postgres"""
    dsn: Dsn
    """Connection string of the database."""
    tables: tuple[TablePattern, ...] = Field(default=("public.*",), min_length=1)
    """Tables to capture, schema.table with * and ?."""
    exclude: tuple[TablePattern, ...] = ()
    """Tables left out of those."""
    slot: Annotated[
        PipelineTemplate,
        matching(r"(?:[a-z0-9_]|\{pipeline\}){1,63}", "must be lowercase letters, digits and _"),
    ] = "{pipeline}_frazil"
    """Replication slot; may use {pipeline}."""
    publication: Publication = defaults("The publication.")
    spool: Spool = defaults("Where the stream rests.")
    heartbeat: Duration = HEARTBEAT
    """How often an idle position is confirmed."""
    on_slot_lost: Annotated[OnSlotLost, one_of(OnSlotLost)] = OnSlotLost.STOP
    """stop, or resync every table."""
    on_stopped_table: OnStoppedTable = defaults("What a paused table may cost.")
    on_widen: Annotated[OnWiden, one_of(OnWiden)] = OnWiden.VERIFY
    """A widened column: verify, accept or stop."""
    initial_copy: Copy = defaults("The initial copy of a table.", alias="copy")
