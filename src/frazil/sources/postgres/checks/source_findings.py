"""What the facts of a Postgres server mean for a configuration; pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from frazil.model.humanize import counted
from frazil.model.postgres.facts import VERSION_STEP
from frazil.model.postgres.lsn import format_lsn
from frazil.sources.findings import CheckedItem, Findings, FoundTable
from frazil.sources.postgres.checks.preflight import find_problems
from frazil.sources.postgres.checks.server_checks import CONNECTIONS_NEEDED, OLDEST_MAJOR, is_usable
from frazil.sources.postgres.publication.checks import may_create_publication
from frazil.sources.postgres.tables.mirror_key import NoKey, mirror_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.model.postgres.facts import PostgresFacts, ServerFacts, TableFacts
    from frazil.sources.postgres.preflight_settings import PreflightSettings


class KeyOf(Protocol):
    """The key columns that the configuration gives tables."""

    def __call__(self, table: str, /) -> tuple[str, ...]:
        """Of this one; empty where it gives none."""


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
