"""What the facts of a Postgres server mean for a configuration; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.model.postgres.facts import VERSION_STEP
from frazil.model.postgres.lsn import format_lsn
from frazil.pipeline.checks.findings import Findings, LookedAt, problem_of
from frazil.pipeline.tables.captured_names import CapturedNames, captured_names
from frazil.sources.postgres.checks.preflight import find_problems
from frazil.sources.postgres.checks.server_checks import CONNECTIONS_NEEDED, OLDEST_MAJOR, is_usable
from frazil.sources.postgres.problem import PreflightSettings, Severity, warns
from frazil.sources.postgres.publication.checks import may_create_publication
from frazil.sources.postgres.tables.mirror_key import NoKey, mirror_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from frazil.config import Config, PostgresSection
    from frazil.model.postgres.facts import PostgresFacts, ServerFacts, TableFacts
    from frazil.pipeline.tables.captured_names import Named
    from frazil.sources.postgres.problem import Problem


def preflight_settings(
    config: Config, source: PostgresSection, names: Mapping[str, Named]
) -> PreflightSettings:
    """What the document wants of the server.

    Keys are configured by mirror; ``names`` has the table of the source that each one mirrors.
    """
    keys = {table.mirror: table.key for table in config.tables if table.key}
    mirrors = {
        name: str(found.mirror) for name, found in names.items() if isinstance(found, CapturedNames)
    }
    return PreflightSettings(
        slot=source.slot,
        publication=source.publication.name,
        creates_publication=source.publication.create,
        held_wal_bytes=source.on_stopped_table.hold,
        keys={name: keys[mirror] for name, mirror in mirrors.items() if mirror in keys},
    )


def judge_source(config: Config, source: PostgresSection, facts: PostgresFacts) -> Findings:
    """Every problem of the source, what stops first, and everything that is in order."""
    names = captured_names(config, (str(table.name) for table in facts.tables))
    settings = preflight_settings(config, source, names)
    found = [
        *find_problems(facts, settings),
        *(problem_of(each) for each in names.values() if not isinstance(each, CapturedNames)),
        *_unused(config, names),
    ]
    problems = sorted(found, key=lambda problem: problem.severity is not Severity.STOPS)
    stopped = {each.table for each in problems if each.severity is Severity.STOPS}
    looked_at = (
        *_server(facts.server),
        *_slot(facts, settings),
        *_publication(facts, settings),
        *_tables(facts, settings, names, stopped),
    )
    return Findings(
        looked_at=looked_at,
        problems=tuple(problems),
        names=names,
        not_made=frozenset(_not_made(facts, settings, names, stopped)),
    )


def _not_made(
    facts: PostgresFacts,
    settings: PreflightSettings,
    names: Mapping[str, Named],
    stopped: set[str | None],
) -> Iterator[str]:
    """Tables of the lake that no run makes while the source is as it is."""
    for table in facts.tables:
        name = str(table.name)
        found = names[name]
        if not isinstance(found, CapturedNames):
            continue
        if name in stopped:
            yield str(found.changelog)
        if name in stopped or isinstance(_key(table, facts, settings), NoKey):
            yield str(found.mirror)


def _key(
    table: TableFacts, facts: PostgresFacts, settings: PreflightSettings
) -> tuple[str, ...] | NoKey:
    published = facts.publication.table(table.oid) if facts.publication else None
    return mirror_key(table, published, settings.keys.get(str(table.name), ()))


def _unused(config: Config, names: Mapping[str, Named]) -> Iterator[Problem]:
    """A listed mirror that nothing becomes is a misspelt one, unless it is a merge by itself."""
    mirrors = {str(each.mirror) for each in names.values() if isinstance(each, CapturedNames)}
    for table in config.tables:
        is_merge = table.changelog is not None and table.key
        if table.mirror not in mirrors and not is_merge:
            yield warns(
                f"tables has {table.mirror}, and no captured table has a mirror of this name.",
                table=table.mirror,
            )


def _server(server: ServerFacts) -> Iterator[LookedAt]:
    if server.major >= OLDEST_MAJOR:
        # Since version 10 the last four digits are the minor version.
        version = f"{server.major}.{server.version % VERSION_STEP}"
        place = "standby" if server.is_standby else "primary"
        way = "over TLS" if server.uses_tls else "not encrypted"
        yield LookedAt(
            "server", f"PostgreSQL {version}, {place}, database {server.database}, {way}"
        )
    if server.wal_level == "logical":
        yield LookedAt("wal_level", server.wal_level)
    if server.role.may_replicate:
        yield LookedAt("role", f"{server.role.name} may replicate")
    free = min(server.max_slots - server.slots_used, server.max_senders - server.senders_used)
    if free >= CONNECTIONS_NEEDED:
        yield LookedAt(
            "capacity",
            f"{server.slots_used} of {server.max_slots} slots and {server.senders_used} of "
            f"{server.max_senders} replication connections are taken",
        )


def _slot(facts: PostgresFacts, settings: PreflightSettings) -> Iterator[LookedAt]:
    slot = facts.slot
    if slot is None:
        yield LookedAt("slot", f"{settings.slot} is not there yet: the first run creates it")
    elif is_usable(slot, facts.server):
        position = slot.confirmed_flush
        where = "" if position is None else f", confirmed through {format_lsn(position)}"
        yield LookedAt("slot", f"{slot.name} is there{where}")


def _publication(facts: PostgresFacts, settings: PreflightSettings) -> Iterator[LookedAt]:
    publication = facts.publication
    if publication is not None:
        sent = len(publication.tables)
        yield LookedAt("publication", f"{publication.name} is there and sends {_count(sent)}")
    elif may_create_publication(facts, settings):
        yield LookedAt(
            "publication", f"{settings.publication} is not there yet: the first run creates it"
        )


def _tables(
    facts: PostgresFacts,
    settings: PreflightSettings,
    names: Mapping[str, Named],
    stopped: set[str | None],
) -> Iterator[LookedAt]:
    if facts.tables:
        yield LookedAt("tables", f"source.tables chooses {_count(len(facts.tables))}")
    for table in facts.tables:
        name = str(table.name)
        found = names[name]
        if name in stopped or not isinstance(found, CapturedNames):
            continue
        key = _key(table, facts, settings)
        mirror = ", no mirror"
        if not isinstance(key, NoKey):
            mirror = f" and mirror {found.mirror} by {', '.join(key)}"
        yield LookedAt(name, f"becomes changelog {found.changelog}{mirror}")


def _count(tables: int) -> str:
    return f"{tables} table" if tables == 1 else f"{tables} tables"
