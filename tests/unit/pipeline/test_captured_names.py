"""What the tables of a source are called in the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frazil.config import load_config, table_settings
from frazil.errors import ConfigError
from frazil.ledger.table_state import Copying, Paused, ResyncRequired, Streaming, TableState
from frazil.model.cause import Cause
from frazil.model.table_name import TableName
from frazil.pipeline.capture import capture_settings
from frazil.pipeline.checks import name_tables
from frazil.pipeline.tables.captured_names import CapturedNames, LakeNames, captured_names
from frazil.sources.findings import Findings, FoundTable
from frazil.sources.kind import CapturePolicy

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.config import Config
    from frazil.ledger.table_state import State
    from frazil.pipeline.tables.captured_names import Named

DOCUMENT = """
pipeline: shop
catalog: {name: ice, kind: sql, uri: 'sqlite:///c.db', warehouse: 'file:///wh'}
source: {kind: postgres, dsn: 'postgresql://h/d'}
"""


def load(tmp_path: Path, more: str = "") -> Config:
    document = tmp_path / "frazil.yaml"
    document.write_text(DOCUMENT + more)
    return load_config(document, environ={}).config


def state_of(table: str, state: State, identity: str = "known") -> TableState:
    return TableState(table=table, identity=identity, state=state)


def texts(found: Named) -> tuple[str, str]:
    assert isinstance(found, CapturedNames), found
    return str(found.changelog), str(found.mirror)


def refusal(found: Named) -> str:
    assert isinstance(found, ConfigError), found
    return str(found)


def test_the_templates_name_both_tables_in_the_catalog(tmp_path: Path) -> None:
    found = captured_names(load(tmp_path), ["public.users"])
    assert found == {
        "public.users": CapturedNames(
            changelog=TableName("ice", ("public",), "users_changelog"),
            mirror=TableName("ice", ("public",), "users"),
        )
    }


def test_templates_may_have_levels_and_the_pipeline(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "changelog: {namespace: 'raw.{pipeline}', table: '{schema}_{table}'}\n"
        "mirror: {namespace: 'lake.{schema}', table: '{table}'}\n",
    )
    found = captured_names(config, ["public.users"])["public.users"]
    assert texts(found) == ("raw.shop.public_users", "lake.public.users")


def test_a_table_called_like_a_placeholder_is_not_filled_again(tmp_path: Path) -> None:
    found = captured_names(load(tmp_path), ["{table}.{schema}"])["{table}.{schema}"]
    assert texts(found) == ("{table}.{schema}_changelog", "{table}.{schema}")


def test_a_listed_table_is_found_by_its_mirror_and_names_its_changelog(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "mirror: {namespace: lake}\n"
        "tables:\n"
        "  - {mirror: lake.users, changelog: history.people}\n"
        "  - {mirror: lake.orders, key: [id]}\n",
    )
    found = captured_names(config, ["public.users", "public.orders"])
    assert texts(found["public.users"]) == ("history.people", "lake.users")
    assert texts(found["public.orders"]) == ("public.orders_changelog", "lake.orders")


@pytest.mark.parametrize(
    "source", ["public.a.b", "od.d.name", "public.a/b", "public.tab\tle", f"public.{'x' * 195}"]
)
def test_a_name_that_iceberg_cannot_take_is_refused_and_the_others_are_not(
    tmp_path: Path, source: str
) -> None:
    found = captured_names(load(tmp_path), [source, "public.users"])
    assert "cannot be used" in refusal(found[source])
    assert refusal(found[source]).startswith(f"{source}: ")
    assert texts(found["public.users"]) == ("public.users_changelog", "public.users")


@pytest.mark.parametrize(
    ("more", "first", "second", "shared"),
    [
        ("", "public.Users", "public.users", "public.Users"),
        ("mirror: {namespace: lake}\n", "a.users", "b.users", "lake.users"),
        ("changelog: {namespace: log}\n", "a.users", "b.users", "log.users_changelog"),
        ("", "public.users_changelog", "public.users", "public.users_changelog"),
        (
            "tables:\n  - {mirror: a.users, changelog: log.all}\n"
            "  - {mirror: b.users, changelog: Log.All}\n",
            "a.users",
            "b.users",
            "log.all",
        ),
    ],
    ids=["case", "mirrors", "changelogs", "a mirror and a changelog", "listed changelogs"],
)
def test_two_tables_that_would_become_one_are_both_refused_by_name(
    tmp_path: Path, more: str, first: str, second: str, shared: str
) -> None:
    found = captured_names(load(tmp_path, more), [first, second, "c.orders"])
    for each, other in ((first, second), (second, first)):
        said = refusal(found[each])
        assert said.startswith(f"{each}: ")
        assert f"of {other}." in said
        assert shared.casefold() in said.casefold()
    assert isinstance(found["c.orders"], CapturedNames)


@pytest.mark.fault("N43")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("public.users", "public.Users"),
        ("public.Users", "public.users"),
        ("public.users", "public.users_changelog"),
        ("public.users_changelog", "public.users"),
    ],
)
@pytest.mark.parametrize(
    "state",
    [
        Streaming(),
        Paused("0/1", Cause(None, "why")),
        ResyncRequired("0/1", "why"),
        Copying(),
        Copying(Cause(None, "why")),
    ],
)
def test_the_table_that_was_there_first_keeps_its_name(
    tmp_path: Path, first: str, second: str, state: State
) -> None:
    config, both = load(tmp_path), [second, first]
    known = {first: state_of(first, state)}
    for more in ({}, {second: state_of(second, Copying(Cause(None, "refused")), "")}):
        found = captured_names(config, both, {**known, **more})
        assert isinstance(found[first], CapturedNames)
        said = refusal(found[second])
        assert f"of {first}." in said
        assert f"tables: [{{source: {second}, mirror: …" in said
    # A ledger in which the newcomer has an identity is of an older version.
    if not isinstance(state, Copying):
        older = {**known, second: state_of(second, Copying(Cause(None, "refused")))}
        assert isinstance(captured_names(config, both, older)[first], CapturedNames)


@pytest.mark.fault("N43")
def test_a_table_is_named_by_the_entry_of_its_source(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "tables:\n  - {source: public.Users, mirror: public.people, changelog: public.people_log}\n"
        "  - {source: public.plain, mirror: lake.plain}\n",
    )
    found = captured_names(config, ["public.users", "public.Users", "public.plain"])
    assert texts(found["public.Users"]) == ("public.people_log", "public.people")
    assert texts(found["public.users"]) == ("public.users_changelog", "public.users")
    assert texts(found["public.plain"]) == ("public.plain_changelog", "lake.plain")


def test_the_pipelines_own_tables_cannot_be_captured_names(tmp_path: Path) -> None:
    found = captured_names(load(tmp_path), ["frazil.shop_ledger", "frazil.Shop_Dead_Letters"])
    assert "the pipeline's ledger" in refusal(found["frazil.shop_ledger"])
    assert "the pipeline's dead letters" in refusal(found["frazil.Shop_Dead_Letters"])


def test_a_table_whose_two_tables_are_one_is_refused(tmp_path: Path) -> None:
    config = load(tmp_path, "tables: [{mirror: public.users, changelog: public.USERS}]\n")
    said = refusal(captured_names(config, ["public.users"])["public.users"])
    assert "mirror of public.users" in said
    assert "changelog of public.users" in said


def test_a_table_that_is_named_twice_is_one_table(tmp_path: Path) -> None:
    assert len(captured_names(load(tmp_path), ["public.users", "public.users"])) == 1


def test_one_table_at_a_time_is_judged_with_those_that_came_meanwhile(tmp_path: Path) -> None:
    tables = {each: state_of(each, Copying(), "") for each in ("public.users", "public.orders")}
    names = LakeNames(load(tmp_path))
    names.follow(lambda: tables)
    assert texts(names.of("public.users")) == ("public.users_changelog", "public.users")
    tables["public.Users"] = state_of("public.Users", Copying(), "")
    for table in ("public.users", "public.Users"):
        with pytest.raises(ConfigError, match="would be the changelog of"):
            names.of(table)
    assert texts(names.of("public.orders")) == ("public.orders_changelog", "public.orders")


def test_a_table_whose_name_no_document_could_list_has_settings_too(tmp_path: Path) -> None:
    settings = table_settings(load(tmp_path), 'public.we"ird')
    assert settings.column_prefix == "cdc_"


TOPICS = """
pipeline: shop
catalog: {name: ice, kind: sql, uri: 'sqlite:///c.db', warehouse: 'file:///wh'}
source:
  kind: kafscale
  bucket: b
  offsets: {backend: none}
  topics:
    - {topic: orders.v1, table: prod.eu.orders}
    - {topic: users, changelog: prod.users_log, mirror: prod.users, key: [id]}
"""


def test_tables_that_a_source_lists_have_the_names_it_gives(tmp_path: Path) -> None:
    document = tmp_path / "frazil.yaml"
    document.write_text(TOPICS + "tables: [{mirror: prod.eu.orders, format_version: 2}]\n")
    config = load_config(document, environ={}).config
    found = captured_names(config, ["orders.v1", "users", "prod.users", "no.such"])
    records = found["orders.v1"]
    assert isinstance(records, CapturedNames)
    assert (str(records.changelog), records.mirror) == ("prod.eu.orders", None)
    # What is said of a table is said of it, whether it is a mirror or not.
    assert table_settings(config, records.listed_as).mirror.format_version == 2
    # One that is not listed is named by the templates, which may lead to the same.
    assert "would be the mirror of users" in refusal(found["users"])
    assert "would be the mirror of prod.users" in refusal(found["prod.users"])
    assert isinstance(found["no.such"], CapturedNames)
    names = LakeNames(config)
    assert texts(names.of("users")) == ("prod.users_log", "prod.users")


def test_a_table_without_a_mirror_is_checked_and_captured(tmp_path: Path) -> None:
    document = tmp_path / "frazil.yaml"
    document.write_text(TOPICS)
    config = load_config(document, environ={}).config
    findings = name_tables(config, Findings(tables=(FoundTable("orders.v1", ("id",)),)))
    (line,) = findings.checked
    assert line.found == "becomes changelog prod.eu.orders, no mirror"
    assert findings.not_made == frozenset()
    policy = CapturePolicy(held_bytes=0)
    settings = capture_settings(config, LakeNames(config).of("orders.v1"), policy)
    assert (str(settings.changelog), settings.partition_by) == ("prod.eu.orders", None)
