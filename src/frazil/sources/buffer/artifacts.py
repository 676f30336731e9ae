"""What a pipeline leaves in a buffer database, and how it is removed."""

from __future__ import annotations

from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.dsn import SessionAccess
from frazil.clients.postgres.lock_claim import load_holder
from frazil.errors import SlotBusyError
from frazil.model.humanize import counted
from frazil.model.postgres.names import quote_identifier, quote_literal
from frazil.sources.artifacts import Artifact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.clients.postgres.session import Session
    from frazil.sources.buffer.settings import BufferSettings

_DOING: Final = "looking for what frazil left"
_HAS_SCHEMA: Final = "select to_regnamespace(%(schema)s) is not null"
_PIPELINES: Final = "select pipeline from {pipelines}"
_OPEN: Final = """
    select coalesce(sum(events), 0)::bigint from {claimed_tables} where pipeline = %(pipeline)s
"""


class BufferArtifact(StrEnum):
    """The kind of an artifact."""

    PIPELINE = "claims of the pipeline"
    SCHEMA = "schema"


class _Answer(NamedTuple):
    value: bool


class _Name(NamedTuple):
    value: str


class _Count(NamedTuple):
    value: int


class BufferTeardown:
    """The artifacts of one pipeline, and a session that may remove them."""

    def __init__(self, session: Session, artifacts: tuple[Artifact, ...]) -> None:
        self._session = session
        self.artifacts = artifacts

    def require_idle(self) -> None:
        """SlotBusyError, naming who must stop, while a process works for the pipeline."""
        for artifact in self.artifacts:
            reader = artifact.reader
            if artifact.stays is None and reader is not None:
                called = "" if reader.application is None else f" ({reader.application})"
                message = f"the pipeline is drained by process {reader.process} there{called}."
                next_step = (
                    "stop the run that drains it; if it is gone and only its connection is left: "
                    f"select pg_terminate_backend({reader.process});"
                )
                raise SlotBusyError(message, next_step=next_step)

    def remove(self, artifact: Artifact) -> bool:
        """Remove one of them; events that were claimed and not committed are pending as before."""
        if artifact.stays is not None or artifact.statement is None:
            message = f"the {artifact.kind} {artifact.name} is not ours to remove"
            raise ValueError(message)
        doing = f"removing the {artifact.kind} {artifact.name}"
        return self._session.execute(artifact.statement, doing=doing) != 0


@contextmanager
def open_teardown(settings: BufferSettings) -> Iterator[BufferTeardown]:
    """Find the artifacts; nothing is changed until one is removed."""
    with connect(settings.dsn, purpose="teardown", access=SessionAccess.READ_WRITE) as session:
        yield BufferTeardown(session, _find(session, settings))


def _find(session: Session, settings: BufferSettings) -> tuple[Artifact, ...]:
    relations = settings.relations
    own = quote_identifier(relations.own_schema)
    (there,) = session.load(_Answer, _HAS_SCHEMA, {"schema": own}, doing=_DOING)
    if not there.value:
        return ()
    query = _PIPELINES.format(pipelines=relations.pipelines)
    others = {each.value for each in session.load(_Name, query, doing=_DOING)}
    others -= {settings.pipeline}
    worker = load_holder(session, settings.worker_lock)
    if not others:
        statement = f"drop schema if exists {own} cascade;"
        return (
            Artifact(
                kind=BufferArtifact.SCHEMA,
                name=relations.own_schema,
                statement=statement,
                reader=worker,
            ),
        )
    parameters = {"pipeline": settings.pipeline}
    query = _OPEN.format(claimed_tables=relations.claimed_tables)
    (events,) = session.load(_Count, query, parameters, doing=_DOING)
    claimed = f", {counted(events.value, 'event')} claimed" if events.value else ""
    return (
        Artifact(
            kind=BufferArtifact.PIPELINE,
            name=f"{settings.pipeline}{claimed}",
            statement=_forget(settings),
            reader=worker,
        ),
        Artifact(
            kind=BufferArtifact.SCHEMA,
            name=relations.own_schema,
            stays=f"{counted(len(others), 'other pipeline')} use it: {', '.join(sorted(others))}",
        ),
    )


def _forget(settings: BufferSettings) -> str:
    """One statement, so that all of it goes or nothing."""
    relations, pipeline = settings.relations, quote_literal(settings.pipeline)
    tables = (
        relations.claimed_batches,
        relations.claimed_tables,
        relations.seen_tables,
        relations.backpressure,
    )
    steps = ", ".join(
        _FORGET.format(name=f"step_{at}", table=each, pipeline=pipeline)
        for at, each in enumerate(tables)
    )
    return _FORGET_ALL.format(steps=steps, pipelines=relations.pipelines, pipeline=pipeline)


_FORGET: Final = "{name} as (delete from {table} where pipeline = {pipeline})"
_FORGET_ALL: Final = "with {steps} delete from {pipelines} where pipeline = {pipeline};"
