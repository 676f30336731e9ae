"""What of a pipeline is removed from a server, and what is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import create_autospec

import pytest

from frazil.clients.postgres.session import Session
from frazil.errors import SlotBusyError
from frazil.model.postgres.facts import SlotReader
from frazil.sources.postgres.artifacts import (
    ArtifactFacts,
    ArtifactKind,
    PostgresTeardown,
    plan_removal,
)
from tests.support.postgres.sound import PUBLICATION, SERVER, SLOT

if TYPE_CHECKING:
    from frazil.sources.artifacts import Artifact

IDLE = SlotReader(
    slot="sales_frazil", is_temporary=False, process=None, application=None, role=None
)
FACTS = ArtifactFacts(
    slot_name="sales_frazil", server=SERVER, slot=SLOT, publication=PUBLICATION, readers=(IDLE,)
)


def plan(facts: ArtifactFacts = FACTS, *, creates_publication: bool = True) -> tuple[Artifact, ...]:
    return plan_removal(facts, creates_publication=creates_publication)


def test_the_slot_goes_first_and_then_the_publication() -> None:
    assert [(artifact.kind, artifact.stays, artifact.statement) for artifact in plan()] == [
        (ArtifactKind.SLOT, None, "select pg_drop_replication_slot('sales_frazil');"),
        (ArtifactKind.PUBLICATION, None, 'drop publication if exists "sales_frazil";'),
    ]


def test_nothing_there_is_nothing_to_remove() -> None:
    assert plan(replace(FACTS, slot=None, publication=None, readers=())) == ()


@pytest.mark.parametrize(
    ("slot", "reason"),
    [
        ({"plugin": None, "database": None}, "physical"),
        ({"plugin": "wal2json"}, "uses wal2json"),
        ({"database": "other"}, "in the database other"),
    ],
)
def test_a_slot_that_only_has_the_name_stays(slot: dict[str, Any], reason: str) -> None:
    artifact, _ = plan(replace(FACTS, slot=replace(SLOT, **slot)))
    assert artifact.stays is not None
    assert reason in artifact.stays


@pytest.mark.parametrize(
    ("facts", "creates", "reason"),
    [
        (FACTS, False, "create is false"),
        (replace(FACTS, server=replace(SERVER, is_standby=True)), True, "primary"),
        (replace(FACTS, publication=replace(PUBLICATION, is_ours=False)), True, "own"),
    ],
)
def test_a_foreign_publication_stays_with_the_sql_for_its_owner(
    facts: ArtifactFacts, *, creates: bool, reason: str
) -> None:
    slot, publication = plan(facts, creates_publication=creates)
    assert slot.stays is None
    assert publication.stays is not None
    assert reason in publication.stays
    assert publication.statement == 'drop publication if exists "sales_frazil";'


def test_slots_of_copies_go_by_themselves_and_are_reported() -> None:
    copying = replace(IDLE, slot="sales_frazil_copy_1f", is_temporary=True, process=7)
    kept = replace(IDLE, slot="sales_frazil_copy_ab")
    other = replace(IDLE, slot="sales_frazil2", is_temporary=True)
    artifacts = plan(replace(FACTS, readers=(IDLE, copying, kept, other)))
    copies = [artifact for artifact in artifacts if artifact.kind is ArtifactKind.COPY_SLOT]
    assert [(artifact.name, artifact.statement) for artifact in copies] == [
        ("sales_frazil_copy_1f", None)
    ]
    assert copies[0].stays is not None


def test_the_slot_of_a_copy_is_known_also_where_its_name_was_cut() -> None:
    long = "s" * 60
    mine = replace(IDLE, slot=f"{long[:49]}_copy_1f2e3d4c", is_temporary=True)
    short = replace(mine, slot=f"{long[:40]}_copy_1f2e3d4c")
    facts = replace(FACTS, slot_name=long, slot=None, publication=None, readers=(mine, short))
    assert [artifact.name for artifact in plan(facts)] == [mine.slot]


def require_idle(artifact: Artifact) -> None:
    PostgresTeardown(create_autospec(Session), (artifact,)).require_idle()


def test_a_slot_that_is_read_names_who_must_stop() -> None:
    require_idle(plan()[0])
    reading = replace(IDLE, process=4711, application="frazil stream")
    slot, publication = plan(replace(FACTS, readers=(reading,)))
    require_idle(publication)
    with pytest.raises(SlotBusyError, match=r"process 4711 there \(frazil stream\)") as raised:
        require_idle(slot)
    assert "pg_terminate_backend(4711)" in str(raised.value)
    nameless = replace(reading, application=None)
    with pytest.raises(SlotBusyError, match=r"process 4711 there\."):
        require_idle(replace(slot, reader=nameless))
