"""A pipeline's traces at its source, found and removed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.dsn import SessionAccess
from frazil.config import PostgresSection
from frazil.errors import ConfigError
from frazil.sources.postgres.artifacts import (
    load_artifact_facts,
    plan_removal,
    remove,
    require_idle,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.clients.postgres.session import Session
    from frazil.config import Config
    from frazil.sources.postgres.artifacts import Artifact


class Teardown:
    """What is at the source, and the means to take it away."""

    def __init__(self, session: Session, traces: tuple[Artifact, ...]) -> None:
        self._session = session
        self.artifacts = traces

    @property
    def removable(self) -> tuple[Artifact, ...]:
        """Those that are ours, in the order in which they go."""
        return tuple(trace for trace in self.artifacts if trace.stays is None)

    def require_idle(self) -> None:
        """SlotBusyError, naming who must stop, while somebody reads the slot."""
        for trace in self.removable:
            require_idle(trace)

    def remove(self, trace: Artifact) -> bool:
        """Remove one of them; False when it was gone already."""
        return remove(self._session, trace)


@contextmanager
def open_teardown(config: Config) -> Iterator[Teardown]:
    """Look for the traces; nothing is changed until somebody removes one.

    Raises ConfigError unless the source is Postgres: no other keeps anything of ours by a name.
    """
    source = config.source
    if not isinstance(source, PostgresSection):
        raise ConfigError(
            "only a Postgres source keeps something of frazil's, and this document has none.",
            next_step="name the document of the pipeline that is to end with -c",
        )
    with connect(source.dsn, purpose="teardown", access=SessionAccess.READ_WRITE) as session:
        facts = load_artifact_facts(session, slot=source.slot, publication=source.publication.name)
        traces = plan_removal(facts, creates_publication=source.publication.create)
        yield Teardown(session, traces)
