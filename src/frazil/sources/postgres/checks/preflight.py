"""All problems at once, each with the SQL that fixes it: what ``frazil check`` shows.

Pure: facts and options in, problems and what is in order out. ``source_check`` loads the former.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from frazil.model.humanize import counted
from frazil.model.postgres.facts import VERSION_STEP
from frazil.model.postgres.lsn import format_lsn
from frazil.sources.findings import CheckedItem, Findings, FoundTable, Severity
from frazil.sources.postgres.checks.server_checks import (
    CONNECTIONS_NEEDED,
    OLDEST_MAJOR,
    is_usable,
    readiness_problems,
    server_problems,
)
from frazil.sources.postgres.checks.table_checks import table_problems
from frazil.sources.postgres.publication.checks import may_create_publication, publication_problems
from frazil.sources.postgres.tables.mirror_key import NoKey, mirror_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from frazil.model.postgres.facts import PostgresFacts, ServerFacts, TableFacts
    from frazil.sources.findings import Problem
    from frazil.sources.postgres.preflight_settings import PreflightSettings

    # The key columns that the configuration gives a table; empty where it gives none.
    KeyOf = Callable[[str], tuple[str, ...]]


def find_problems(facts: PostgresFacts, settings: PreflightSettings) -> tuple[Problem, ...]:
    """Every problem: what stops first, and in each group the server before its tables."""
    found = [
        *server_problems(facts, settings),
        *publication_problems(facts, settings),
        *table_problems(facts, settings),
    ]
    return tuple(sorted(found, key=lambda problem: problem.severity is not Severity.STOPS))


def find_blocking(facts: PostgresFacts, settings: PreflightSettings) -> tuple[Problem, ...]:
    """What keeps every table from being captured.

    Problems of one table are not included. The slot is not checked here: that needs the ledger.
    """
    found = [*readiness_problems(facts), *publication_problems(facts, settings)]
    return tuple(each for each in found if each.severity is Severity.STOPS and each.table is None)


def judge_source(facts: PostgresFacts, wanted: PreflightSettings, key_of: KeyOf) -> Findings:
    """Every problem of the source, what stops first, and everything that is in order."""
    keys = {name: key_of(name) for name in (str(each.name) for each in facts.tables)}
    settings = replace(wanted, keys={name: key for name, key in keys.items() if key})
    return Findings(
        checked=(
            *_server(facts.server),
            *_slot(facts, settings),
            *_publication(facts, settings),
            *_tables(facts),
        ),
        problems=find_problems(facts, settings),
        tables=tuple(
            FoundTable(str(each.name), _key(each, facts, settings)) for each in facts.tables
        ),
    )


def _key(table: TableFacts, facts: PostgresFacts, settings: PreflightSettings) -> tuple[str, ...]:
    published = facts.publication.table(table.oid) if facts.publication else None
    key = mirror_key(table, published, settings.keys.get(str(table.name), ()))
    return () if isinstance(key, NoKey) else key


def _server(server: ServerFacts) -> Iterator[CheckedItem]:
    if server.major >= OLDEST_MAJOR:
        # Since version 10 the last four digits are the minor version.
        version = f"{server.major}.{server.version % VERSION_STEP}"
        role = "standby" if server.is_standby else "primary"
        way = "over TLS" if server.uses_tls else "not encrypted"
        yield CheckedItem(
            "server", f"PostgreSQL {version}, {role}, database {server.database}, {way}"
        )
    if server.wal_level == "logical":
        yield CheckedItem("wal_level", server.wal_level)
    if server.role.may_replicate:
        yield CheckedItem("role", f"{server.role.name} may replicate")
    free = min(server.max_slots - server.slots_used, server.max_senders - server.senders_used)
    if free >= CONNECTIONS_NEEDED:
        yield CheckedItem(
            "capacity",
            f"{server.slots_used} of {server.max_slots} slots and {server.senders_used} of "
            f"{server.max_senders} replication connections are taken",
        )


def _slot(facts: PostgresFacts, settings: PreflightSettings) -> Iterator[CheckedItem]:
    slot = facts.slot
    if slot is None:
        yield CheckedItem("slot", f"{settings.slot} is not there yet: the first run creates it")
    elif is_usable(slot, facts.server):
        position = slot.confirmed_flush
        where = "" if position is None else f", confirmed through {format_lsn(position)}"
        yield CheckedItem("slot", f"{slot.name} is there{where}")


def _publication(facts: PostgresFacts, settings: PreflightSettings) -> Iterator[CheckedItem]:
    publication = facts.publication
    if publication is not None:
        sent = len(publication.tables)
        yield CheckedItem(
            "publication", f"{publication.name} is there and sends {counted(sent, 'table')}"
        )
    elif may_create_publication(facts, settings):
        yield CheckedItem(
            "publication", f"{settings.publication} is not there yet: the first run creates it"
        )


def _tables(facts: PostgresFacts) -> Iterator[CheckedItem]:
    if facts.tables:
        yield CheckedItem("tables", f"source.tables chooses {counted(len(facts.tables), 'table')}")
