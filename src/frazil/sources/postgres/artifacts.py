"""What a pipeline leaves at a server, and how it is removed."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from frazil.clients.postgres.catalog_facts import (
    load_publication,
    load_readers,
    load_server,
    load_slot,
)
from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.dsn import SessionAccess
from frazil.clients.postgres.translation import UNDEFINED_OBJECT
from frazil.errors import PositionLostError, SlotBusyError
from frazil.model.postgres.names import quote_identifier, quote_literal
from frazil.sources.artifacts import Artifact
from frazil.sources.postgres.checks.server_checks import PLUGIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.clients.postgres.session import Session
    from frazil.model.postgres.facts import PublicationFacts, ServerFacts, SlotFacts, SlotReader
    from frazil.sources.artifacts import ArtifactReader
    from frazil.sources.postgres.settings import PostgresSettings

# The name of a temporary slot: the pipeline's slot, truncated if too long, and a token of the copy.
_COPY = re.compile(r"(?P<slot>.*)_copy_[0-9a-f]+")
_LONGEST_NAME = 63
# Of slots that begin with this much of the name, the rest is compared here.
_PREFIX_CHARACTERS = 32


class ArtifactKind(StrEnum):
    """The kind of an artifact."""

    SLOT = "slot"
    COPY_SLOT = "temporary slot"
    PUBLICATION = "publication"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactFacts:
    """What is at the server under the names of a pipeline.

    ``readers`` are all slots that begin like ``slot_name``, each with its reader.
    """

    slot_name: str
    server: ServerFacts
    slot: SlotFacts | None
    publication: PublicationFacts | None
    readers: tuple[SlotReader, ...]


def load_artifact_facts(session: Session, *, slot: str, publication: str) -> ArtifactFacts:
    """The slot, those of copies, and the publication."""
    with session.one_view():
        return ArtifactFacts(
            slot_name=slot,
            server=load_server(session),
            slot=load_slot(session, slot),
            publication=load_publication(session, publication),
            readers=load_readers(session, slot[:_PREFIX_CHARACTERS]),
        )


def plan_removal(facts: ArtifactFacts, *, creates_publication: bool) -> tuple[Artifact, ...]:
    """Every artifact, in the order in which they are removed; pure.

    The slot is first: while it is read, nothing has been changed yet.
    """
    return (
        *_slot(facts),
        *_publication(facts, creates_publication=creates_publication),
        *_copies(facts),
    )


def _slot(facts: ArtifactFacts) -> Iterator[Artifact]:
    slot = facts.slot
    if slot is None:
        return
    stays = None
    if slot.plugin is None:
        stays = "it is physical, and frazil makes no such slots"
    elif slot.plugin != PLUGIN or slot.database != facts.server.database:
        stays = f"it uses {slot.plugin} in the database {slot.database}, so it is not this one's"
    yield Artifact(
        kind=ArtifactKind.SLOT,
        name=slot.name,
        statement=f"select pg_drop_replication_slot({quote_literal(slot.name)});",
        stays=stays,
        reader=next((each for each in facts.readers if each.slot == slot.name), None),
    )


def _publication(facts: ArtifactFacts, *, creates_publication: bool) -> Iterator[Artifact]:
    publication = facts.publication
    if publication is None:
        return
    stays = None
    if not creates_publication:
        stays = "source.publication.create is false, so frazil did not create it"
    elif facts.server.is_standby:
        stays = "the server is a standby, so it can be dropped on the primary only"
    elif not publication.is_ours:
        stays = f"the role {facts.server.role.name} does not own it, so its owner may drop it"
    yield Artifact(
        kind=ArtifactKind.PUBLICATION,
        name=publication.name,
        statement=f"drop publication if exists {quote_identifier(publication.name)};",
        stays=stays,
    )


def _copies(facts: ArtifactFacts) -> Iterator[Artifact]:
    for reader in facts.readers:
        if reader.is_temporary and _is_of_copy(reader.slot, facts.slot_name):
            yield Artifact(
                kind=ArtifactKind.COPY_SLOT,
                name=reader.slot,
                stays="it goes by itself when the copy that uses it ends",
                reader=reader,
            )


def _is_of_copy(name: str, slot: str) -> bool:
    found = _COPY.fullmatch(name)
    if found is None:
        return False
    was_cut = len(name) == _LONGEST_NAME and slot.startswith(found["slot"])
    return found["slot"] == slot or was_cut


def refuse_busy(slot: str, reader: ArtifactReader) -> None:
    """SlotBusyError, naming who must stop, if a process reads the slot."""
    if reader.process is None:
        return
    called = "" if reader.application is None else f" ({reader.application})"
    message = f"the slot {slot} is read by process {reader.process} there{called}."
    raise SlotBusyError(
        message,
        next_step="stop the run that reads it; if it is gone and only its connection is left: "
        f"select pg_terminate_backend({reader.process});",
    )


class PostgresTeardown:
    """The artifacts of one pipeline, and a session that may remove them."""

    def __init__(self, session: Session, artifacts: tuple[Artifact, ...]) -> None:
        self._session = session
        self.artifacts = artifacts

    def require_idle(self) -> None:
        """SlotBusyError, naming who must stop, while another process reads the slot."""
        for artifact in self.artifacts:
            if artifact.stays is None and artifact.reader is not None:
                refuse_busy(artifact.name, artifact.reader)

    def remove(self, artifact: Artifact) -> bool:
        """Remove one of them; False when it was gone already.

        SlotBusyError when a process began to read the slot meanwhile.
        """
        if artifact.stays is not None or artifact.statement is None:
            message = f"the {artifact.kind} {artifact.name} is not ours to remove"
            raise ValueError(message)
        try:
            self._session.execute(
                artifact.statement,
                doing=f"dropping the {artifact.kind} {artifact.name}",
                meanings={UNDEFINED_OBJECT: PositionLostError},
            )
        except PositionLostError:
            return False
        except SlotBusyError:
            for reader in load_readers(self._session, artifact.name):
                if reader.slot == artifact.name:
                    refuse_busy(reader.slot, reader)
            raise
        return True


@contextmanager
def open_teardown(settings: PostgresSettings) -> Iterator[PostgresTeardown]:
    """Find the artifacts; nothing is changed until one is removed."""
    with connect(settings.dsn, purpose="teardown", access=SessionAccess.READ_WRITE) as session:
        facts = load_artifact_facts(session, slot=settings.slot, publication=settings.publication)
        found = plan_removal(facts, creates_publication=settings.creates_publication)
        yield PostgresTeardown(session, found)
