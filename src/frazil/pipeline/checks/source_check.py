"""The source of a configuration, looked at before anything is started."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from frazil import errors
from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.replication import connect_replication
from frazil.config import PostgresSection
from frazil.pipeline.checks.findings import CheckOutcome, Findings, LookedAt, problem_of
from frazil.pipeline.checks.source_findings import judge_source, preflight_settings
from frazil.sources.postgres.checks.facts import load_facts
from frazil.sources.postgres.checks.preflight import find_blocking

if TYPE_CHECKING:
    from frazil.clients.postgres.session import Session
    from frazil.config import Config
    from frazil.errors import FrazilError
    from frazil.model.postgres.facts import PostgresFacts, ServerFacts

PURPOSE = "check"
_REFUSED = (
    "The user or the password in source.dsn is wrong, or the server's pg_hba.conf does not let "
    "them in from here."
)
_NO_REPLICATION = (
    "Ordinary connections work: look whether source.dsn leads to a connection pooler, which cannot "
    "replicate, instead of the server."
)


def check_readiness(config: Config) -> Findings:
    """What keeps a run from capturing anything; raises what keeps us from looking.

    Nothing is created. A source of another kind is not looked at.
    """
    source = config.source
    if not isinstance(source, PostgresSection):
        return Findings()
    with connect(source.dsn, purpose=PURPOSE) as session:
        facts = _load(session, source)
    settings = preflight_settings(config, source, {})
    found = Findings(problems=find_blocking(facts, settings))
    return found if found.problems else _with_replication(found, source, facts.server)


def check_source(config: Config) -> Findings:
    """Everything about the source; what keeps us from looking is told, not raised."""
    source = config.source
    if source is None:
        return Findings()
    if not isinstance(source, PostgresSection):
        words = f"a source of the kind {source.kind} is not looked at"
        return Findings(looked_at=(LookedAt("source", words, CheckOutcome.SKIPPED),))
    try:
        with connect(source.dsn, purpose=PURPOSE) as session:
            facts = _load(session, source)
    except errors.FrazilError as error:
        return Findings(problems=(problem_of(error, advice=_advice(error)),), error=error)
    return _with_replication(judge_source(config, source, facts), source, facts.server)


def _load(session: Session, source: PostgresSection) -> PostgresFacts:
    return load_facts(
        session,
        slot=source.slot,
        publication=source.publication.name,
        include=source.tables,
        exclude=source.exclude,
    )


def _advice(error: FrazilError) -> str | None:
    match error:
        case errors.PermissionError():
            return _REFUSED
        case _:
            return None


def _with_replication(findings: Findings, source: PostgresSection, server: ServerFacts) -> Findings:
    """A stream takes a connection of another kind, and poolers let only ordinary ones through."""
    # Where the role may not, or no connection is free, that was said already.
    if not server.role.may_replicate or server.senders_used >= server.max_senders:
        return findings
    try:
        with connect_replication(source.dsn, purpose=PURPOSE) as connection:
            found = connection.identify()
    except errors.FrazilError as error:
        refused = problem_of(error, advice=_NO_REPLICATION)
        return replace(findings, problems=(refused, *findings.problems))
    if found.system_identifier != server.system_identifier:
        other = errors.SourceReplacedError(
            "a connection for replication reaches another server than an ordinary one.",
            next_step="name one server in source.dsn",
        )
        return replace(findings, problems=(problem_of(other), *findings.problems))
    reached = LookedAt("replication", "a connection for it works")
    return replace(findings, looked_at=(*findings.looked_at, reached))
