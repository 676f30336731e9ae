"""The next command that ``verify`` prints: one, for the gravest finding."""

from __future__ import annotations

from dataclasses import replace

from frazil.cli.verbs.verify import choose_records, next_command
from frazil.errors import FrazilError, SourceReplacedError, SourceUnavailableError
from frazil.model.table_name import TableName
from frazil.verify.mirror_verifier import Verification

BLANK = Verification(
    changelog=TableName("lake", ("public",), "a_changelog"),
    mirror=TableName("lake", ("public",), "a"),
)
DIFFERS = replace(BLANK, differing_ranges=1, different=1, next_step="frazil resync public.a")
BEHIND = replace(BLANK, is_behind=True, next_step="frazil merge --once")


def test_nothing_is_to_be_done_where_all_agree() -> None:
    assert next_command({"public.a": BLANK}) == ""


def test_what_differs_comes_first_and_in_one_command() -> None:
    odd = replace(DIFFERS, next_step="frazil resync 'public.x y'")
    away = SourceUnavailableError("away", next_step="check the server")
    found: dict[str, Verification | FrazilError] = {
        "a": BEHIND,
        "b": DIFFERS,
        "c": away,
        "d": odd,
        "e": DIFFERS,
    }
    assert next_command(found) == "frazil resync public.a 'public.x y'"


def test_what_could_not_be_judged_comes_before_what_is_behind() -> None:
    replaced = SourceReplacedError("another", next_step="frazil resync public.c")
    assert next_command({"a": BEHIND, "c": replaced}) == "frazil resync public.c"
    assert next_command({"a": BEHIND, "b": BLANK}) == "frazil merge --once"
    bare = SourceReplacedError("another")
    assert next_command({"c": bare}) == bare.remedy


def test_without_a_source_the_mirror_is_made_from_its_changelog() -> None:
    step = "frazil resync public.a"
    assert next_command({"a": replace(DIFFERS, next_step=step)}) == step


def test_tables_of_records_are_named_as_at_the_source_or_in_the_lake() -> None:
    orders, users = (TableName("lake", ("prod",), each) for each in ("orders", "users"))
    recorded = {"shop.orders": orders, "shop.users": users}
    assert choose_records([], recorded) == recorded
    assert choose_records(["prod.orders"], recorded) == {"shop.orders": orders}
    assert choose_records(["shop.users", "public.mirror"], recorded) == {"shop.users": users}
    assert choose_records(["public.mirror"], recorded) == {}
