"""What makes a table the one that was captured so far, and what happened when it is not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from frazil.model.postgres.facts import IdentityKind, UniqueKey
from frazil.sources.postgres.tables.identity import identity_differences, identity_of
from tests.support.postgres.views import ID, INT, WORD, attribute, view

BIGINT = 20
FIRST_RECORDED = (
    "system",
    "database",
    "relation",
    "publication",
    "membership",
    "filter",
    "columns",
    "publish",
    "via_root",
    "generated",
)


def key(oid: int, *columns: str, made_by: int = 1) -> UniqueKey:
    return UniqueKey(oid=oid, columns=columns, made_by=made_by)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"system_identifier": "7001", "oid": 2}, "it is on another server"),
        ({"database": "other"}, "it is in another database"),
        ({"oid": 2, "membership_oid": 100}, "it was dropped and created again"),
        ({"membership_oid": 100}, "it left the publication and entered it again"),
        ({"row_filter": "(id > 1)"}, "its row filter changed"),
        ({"has_column_list": True}, "its column list changed"),
        ({"sends_truncates": False}, "the kinds of changes that are published changed"),
        ({"via_root": False}, "the publication sends partitions otherwise"),
        ({"sends_generated": True}, "the publication sends generated columns otherwise"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unannounced_changes_are_described(changed: dict[str, Any], text: str) -> None:
    before, now = identity_of(view()), identity_of(view(**changed))
    (found,) = identity_differences(before, now)
    assert found.startswith(text)


def test_several_differences_are_all_reported() -> None:
    now = identity_of(view(row_filter="(id > 1)", sends_truncates=False))
    assert len(identity_differences(identity_of(view()), now)) == 2


def test_columns_that_come_and_go_and_timelines_are_no_part_of_the_identity() -> None:
    grown = view(ID, WORD, attribute(4, "late"), timeline=2, identity=IdentityKind.FULL)
    assert identity_of(grown) == identity_of(view())
    assert identity_differences(identity_of(view()), identity_of(grown)) == ()


def test_a_renamed_column_stays_in_its_list() -> None:
    listed = view(has_column_list=True)
    renamed = view(ID, replace(WORD, name="text"), has_column_list=True)
    assert identity_of(listed) == identity_of(renamed)


@pytest.mark.parametrize("text", ["", "[]", "{}", "{"])
def test_an_identity_that_cannot_be_read_is_another_one(text: str) -> None:
    assert identity_differences(text, identity_of(view()))


def test_facts_that_an_older_version_did_not_record_are_no_differences() -> None:
    now = json.loads(identity_of(view(is_implicit=True, unique_keys=(key(7, "id"),))))
    before = {name: now[name] for name in now if name in FIRST_RECORDED}
    assert len(before) == len(FIRST_RECORDED)
    assert identity_differences(json.dumps(before), json.dumps(now)) == ()


@pytest.mark.fault("N36")
def test_options_that_are_what_they_were_again_were_changed() -> None:
    (found,) = identity_differences(identity_of(view()), identity_of(view(options_changed_by=9)))
    assert found.startswith("the options of its publication were changed")


@pytest.mark.fault("N35")
def test_a_table_published_implicitly_missed_what_happened_while_it_was_gone() -> None:
    named, implicit = identity_of(view()), identity_of(view(is_implicit=True))
    assert identity_differences(named, named, was_gone=True) == ()
    assert identity_differences(implicit, implicit) == ()
    (found,) = identity_differences(implicit, implicit, was_gone=True)
    assert found.startswith("it was gone, and nothing kept")


@pytest.mark.fault("N35")
def test_a_table_moved_away_and_back_missed_what_happened_meanwhile() -> None:
    def moved(by: int, **facts: object) -> str:
        return identity_of(view(moved_by=by, **facts))

    assert identity_differences(moved(1), moved(2)) == ()
    everything = {"is_implicit": True, "membership_oid": None}
    assert identity_differences(moved(1, **everything), moved(2, **everything)) == ()
    (found,) = identity_differences(moved(1, is_implicit=True), moved(2, is_implicit=True))
    assert found.startswith("it was moved to another schema and back")


@pytest.mark.fault("N35")
def test_a_table_that_was_unlogged_for_a_while_was_written_again_with_the_same_columns() -> None:
    def rewritten(toast: int, *changed_by: tuple[int, int], is_implicit: bool = True) -> str:
        facts = view(toast_oid=toast, changed_by=changed_by, is_implicit=is_implicit)
        return identity_of(facts)

    before = rewritten(1, (1, 700))
    assert identity_differences(before, rewritten(2, (1, 701))) == ()
    assert identity_differences(before, rewritten(1, (1, 701))) == ()
    # A column of text came, and with it a TOAST table.
    assert identity_differences(rewritten(0, (1, 700)), before) == ()
    (found,) = identity_differences(before, rewritten(2, (1, 700)))
    assert found.startswith("it was unlogged for a while")
    # A table that is named cannot become unlogged.
    named = rewritten(1, (1, 700), is_implicit=False)
    assert identity_differences(named, rewritten(2, (1, 700), is_implicit=False)) == ()


@pytest.mark.fault("N37")
def test_a_key_that_was_dropped_and_added_again_kept_nothing_apart_meanwhile() -> None:
    def keyed(*keys: UniqueKey, configured: tuple[str, ...] = (), **facts: object) -> str:
        return identity_of(view(unique_keys=keys, **facts), configured)

    before = keyed(key(7, "id"))
    assert identity_differences(before, keyed(key(7, "id", made_by=2))) == ()
    for now in (keyed(key(8, "id")), keyed(), keyed(key(7, "word"))):
        (found,) = identity_differences(before, now)
        assert found.startswith("its key was dropped")
    # One of two is enough, and a table that had none has none to lose.
    both = keyed(key(7, "id"), key(8, "id"))
    assert identity_differences(both, keyed(key(8, "id"), key(9, "id"))) == ()
    assert identity_differences(keyed(), keyed(key(7, "id"))) == ()
    assert identity_differences(
        keyed(key(7, "word"), configured=("word",)), keyed(key(8, "word"), configured=("word",))
    )


@pytest.mark.fault("N37")
def test_a_key_made_again_with_the_type_of_its_column_was_there_all_the_time() -> None:
    def keyed(oid: int, type_: int, *, written_by: int) -> str:
        wider = view(
            replace(ID, type_oid=type_),
            WORD,
            unique_keys=(key(oid, "id", made_by=5),),
            changed_by=((1, written_by), (3, 1)),
        )
        return identity_of(wider)

    before = keyed(7, INT, written_by=1)
    assert identity_differences(before, keyed(8, BIGINT, written_by=5)) == ()
    assert identity_differences(before, keyed(8, BIGINT, written_by=4))
    assert identity_differences(before, keyed(8, INT, written_by=5))


def test_an_identity_is_sorted_json() -> None:
    document = json.loads(identity_of(view()))
    assert list(document) == sorted(document)
    assert document["columns"] is None
