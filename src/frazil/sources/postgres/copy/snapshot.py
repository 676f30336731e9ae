"""The snapshot that all splits of a copy read, kept open by an idle connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from frazil.clients.postgres.replication import SLOT_PATIENCE, connect_replication
from frazil.errors import SlotBusyError
from frazil.hooks import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from frazil.clients.postgres.dsn import SecretText
    from frazil.clients.postgres.replication import (
        CreatedSlot,
        ReplicationConnection,
        SystemIdentity,
    )
    from frazil.hooks import Clock, Randomness

_CLOCK = SystemClock()
# A server sees the end of a connection within milliseconds.
_TAKEN_SECONDS = 0.05
# Postgres cuts names at 63 bytes.
_LONGEST_NAME = 63
_TOKEN_BYTES = 4


def copy_slot_name(slot: str, randomness: Randomness) -> str:
    """What the slot of a copy is called, after the pipeline's own."""
    suffix = f"_copy_{randomness.token(_TOKEN_BYTES).hex()}"
    return slot[: _LONGEST_NAME - len(suffix)] + suffix


@dataclass(frozen=True, slots=True)
class CopySnapshot:
    """A snapshot that can be adopted until this is closed, or its connection breaks.

    A copy counts only if this is still alive once the last row was read: a server that started
    again in between may have given the snapshot's name away.
    """

    connection: ReplicationConnection
    identity: SystemIdentity
    """The server that it is a state of."""
    consistent_point: int
    """Transactions whose commit is before this are in the snapshot, and no others."""
    snapshot: str
    """The name under which other sessions adopt it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_alive(self) -> bool:
        """Whether the connection is open, as far as is known here; nothing is sent."""
        return self.connection.is_alive()

    def close(self) -> None:
        """Let go of the snapshot; a second time does nothing."""
        self.connection.close()


def open_copy_snapshot(
    dsn: SecretText,
    *,
    slot: str,
    clock: Clock = _CLOCK,
    slot_patience: timedelta = SLOT_PATIENCE,
    is_stopping: Callable[[], bool] = lambda: False,
) -> CopySnapshot:
    """Take a snapshot with a temporary slot of this name, which lives as long as the snapshot.

    Waits for the transactions that are open now; SourceUnavailableError when one of them stays
    open for longer than the patience. Waits as long for another slot of the name, which may be
    one that was just let go; SlotBusyError when it stays. ShutdownRequested when the end is wished.
    """
    connection = connect_replication(
        dsn,
        purpose="copy snapshot",
        slot_patience=slot_patience,
        clock=clock,
        is_stopping=is_stopping,
    )
    try:
        identity = connection.identify()
        created = _create(connection, slot, clock=clock, patience=slot_patience)
    except BaseException:
        connection.close()
        raise
    return CopySnapshot(connection, identity, created.consistent_point, created.snapshot)


def _create(
    connection: ReplicationConnection, slot: str, *, clock: Clock, patience: timedelta
) -> CreatedSlot:
    deadline = clock.monotonic() + patience.total_seconds()
    while True:
        try:
            return connection.create_slot(slot, temporary=True)
        except SlotBusyError:
            if clock.monotonic() >= deadline:
                raise
        clock.sleep(_TAKEN_SECONDS)
