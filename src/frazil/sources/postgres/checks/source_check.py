"""A Postgres source, checked before anything is started; nothing is created."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from frazil import errors
from frazil.clients.postgres.catalog_facts import (
    load_open_transactions,
    load_publication,
    load_relations,
    load_server,
    load_slot,
    load_tables,
)
from frazil.clients.postgres.connecting import connect
from frazil.clients.postgres.replication import connect_replication
from frazil.hooks import SystemClock
from frazil.model.postgres.facts import PostgresFacts
from frazil.sources.findings import CheckedItem, Findings, problem_of, warns
from frazil.sources.postgres.checks.preflight import find_blocking, judge_source
from frazil.sources.postgres.tables.selection import nearest_names, select_tables

if TYPE_CHECKING:
    from collections.abc import Iterable

    from frazil.clients.postgres.session import Session
    from frazil.errors import FrazilError
    from frazil.hooks import Clock
    from frazil.model.postgres.facts import ServerFacts
    from frazil.sources.findings import Problem
    from frazil.sources.postgres.checks.preflight import KeyOf
    from frazil.sources.postgres.preflight_settings import PreflightSettings
    from frazil.sources.postgres.settings import PostgresSettings

PURPOSE = "check"
_REFUSED = (
    "The user or the password in source.dsn is wrong, or the server's pg_hba.conf does not let "
    "them in from here."
)
_NO_REPLICATION = (
    "Ordinary connections work: check whether source.dsn leads to a connection pooler, which "
    "cannot replicate, instead of the server."
)
_CLOCK = SystemClock()


def load_facts(
    session: Session,
    *,
    slot: str,
    publication: str,
    include: Iterable[str],
    exclude: Iterable[str] = (),
    clock: Clock = _CLOCK,
) -> PostgresFacts:
    """The server, the slot, the publication, and the tables that the patterns choose."""
    with session.one_view():
        server = load_server(session, clock=clock)
        relations = load_relations(session)
        selection = select_tables(relations, include=include, exclude=exclude)
        names = [str(each.name) for each in relations]
        return PostgresFacts(
            server=server,
            slot=load_slot(session, slot),
            publication=load_publication(session, publication),
            tables=load_tables(session, selection.oids),
            unmatched=selection.unmatched,
            nearest=nearest_names(selection.unmatched, names),
            transactions=load_open_transactions(session),
        )


def spool_problem(folder: str, master: str) -> Problem | None:
    """A spool on the driver's disk, which executors of other machines do not see."""
    if master.startswith("local") or not folder.startswith(("/", "file:")):
        return None
    return warns(
        f"source.spool.dir is a local folder, {folder}, and the executors of {master} read it: "
        "unless all machines share it, name a location in a store, such as s3://bucket/spool."
    )


def check_readiness(source: PostgresSettings, wanted: PreflightSettings) -> Findings:
    """What keeps a run from capturing anything; raises what prevents the check."""
    facts = _load(source)
    found = Findings(problems=find_blocking(facts, wanted))
    return found if found.problems else _with_replication(found, source, facts.server)


def check_source(source: PostgresSettings, wanted: PreflightSettings, key_of: KeyOf) -> Findings:
    """Everything about the source; what prevents the check is a problem too."""
    try:
        facts = _load(source)
    except errors.FrazilError as error:
        return Findings(problems=(problem_of(error, advice=_advice(error)),), error=error)
    return _with_replication(judge_source(facts, wanted, key_of), source, facts.server)


def _load(source: PostgresSettings) -> PostgresFacts:
    with connect(source.dsn, purpose=PURPOSE) as session:
        return load_facts(
            session,
            slot=source.slot,
            publication=source.publication,
            include=source.include,
            exclude=source.exclude,
        )


def _advice(error: FrazilError) -> str | None:
    return _REFUSED if isinstance(error, errors.PermissionError) else None


def _with_replication(
    findings: Findings, source: PostgresSettings, server: ServerFacts
) -> Findings:
    """A stream takes a connection of another kind, and poolers let only ordinary ones through."""
    # Where the role may not, or no connection is free, that is a problem already.
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
    reached = CheckedItem("replication", "a connection for it works")
    return replace(findings, checked=(*findings.checked, reached))
