"""Which tables ``position`` speaks of, and what an operator's position becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frazil.cli.exit_codes import ExitCode
from frazil.cli.main import main
from frazil.cli.verbs.position.reports import TableRole, ledger_table, plan_pairs, table_to_set
from frazil.cli.verbs.position.verbs import (
    check_position,
    complete_position,
    parse_position,
    plan_goal,
)
from frazil.config import load_config
from frazil.errors import ConfigError
from frazil.model.marker import Marker, MarkerRole

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.config import Config
    from frazil.model.marker import Position

CATALOG = "pipeline: shop\ncatalog: {kind: sql, uri: 'sqlite:///c.db', warehouse: ./wh}\n"
MERGES = "tables: [{mirror: public.users, changelog: log.users, key: [id]}]\n"
POSTGRES = "source: {kind: postgres, dsn: 'postgresql://h/d', tables: ['public.*']}\n"
KAFSCALE = (
    "source:\n  kind: kafscale\n  bucket: b\n  offsets: {backend: none}\n  topics:\n"
    "    - {topic: orders, table: prod.orders, columns: [{name: id, type: long}]}\n"
    "    - {topic: users, changelog: prod.log, mirror: prod.users, key: [id], "
    "columns: [{name: id, type: long}]}\n"
)
BUFFER = "source: {kind: buffer, dsn: 'postgresql://h/d'}\n"


@pytest.fixture
def document(tmp_path: Path) -> Path:
    return tmp_path / "frazil.yaml"


def config_of(document: Path, text: str) -> Config:
    document.write_text(CATALOG + text)
    return load_config(document, environ={}).config


def names(config: Config, table: str | None = None) -> list[tuple[str, str, str | None]]:
    return [
        (
            marker_table.kind.value,
            str(marker_table.name),
            marker_table.role and marker_table.role.value,
        )
        for pair in plan_pairs(config, table)
        for marker_table in pair.marker_tables
    ]


def test_listed_merges_are_their_two_tables_by_either_name(document: Path) -> None:
    config = config_of(document, MERGES)
    both = [("changelog", "log.users", "ingest"), ("mirror", "public.users", "merge")]
    assert names(config) == both
    assert names(config, "log.users") == names(config, "public.users") == both
    assert names(config, "a.b") == [("table", "a.b", None)]
    assert names(config, "frazil.shop_ledger") == [("ledger", "frazil.shop_ledger", "ingest")]
    assert str(ledger_table(config).name) == "frazil.shop_ledger"


@pytest.mark.parametrize(
    ("templates", "changelog"),
    [
        ("", "public.users_changelog"),
        ("changelog: {namespace: history, table: '{schema}_{table}'}", "history.public_users"),
        ("mirror: {namespace: lake, table: '{table}'}", None),
        ("mirror: {namespace: '{schema}', table: 'of_{table}'}", None),
    ],
)
def test_a_changelog_is_found_by_the_templates_or_not_at_all(
    document: Path, templates: str, changelog: str | None
) -> None:
    config = config_of(document, f"{POSTGRES}{templates}\ntables: [{{mirror: public.users}}]\n")
    (pair,) = plan_pairs(config)
    assert (pair.changelog and str(pair.changelog.name)) == changelog


def test_topics_are_tables_too(document: Path) -> None:
    assert names(config_of(document, KAFSCALE)) == [
        ("changelog", "prod.orders", "ingest"),
        ("changelog", "prod.log", "ingest"),
        ("mirror", "prod.users", "merge"),
    ]


def test_the_role_says_which_table_of_a_pair_is_set(document: Path) -> None:
    config = config_of(document, MERGES)
    mirror, counted_in = table_to_set(config, "log.users", MarkerRole.MERGE)
    assert (str(mirror.name), counted_in and str(counted_in.name)) == ("public.users", "log.users")
    changelog, none = table_to_set(config, "public.users", MarkerRole.INGEST)
    assert (str(changelog.name), none) == ("log.users", None)
    other, none = table_to_set(config, "a.b", MarkerRole.MERGE)
    assert (other.kind, str(other.name), none) == (TableRole.OTHER, "a.b", None)
    topic, none = table_to_set(config_of(document, KAFSCALE), "orders", MarkerRole.INGEST)
    assert (str(topic.name), none) == ("prod.orders", None)
    with pytest.raises(ConfigError, match=r"names no mirror for prod\.orders"):
        table_to_set(config_of(document, KAFSCALE), "prod.orders", MarkerRole.MERGE)


@pytest.mark.parametrize(
    ("source", "role", "good", "bad"),
    [
        (MERGES, MarkerRole.MERGE, "5781947118336215154", "0/1A2B"),
        (MERGES, MarkerRole.INGEST, "anything", ""),
        (POSTGRES, MarkerRole.INGEST, "0/1A2B3C4D", "0/1a2b"),
        (KAFSCALE, MarkerRole.INGEST, '{"orders/0":5}', "5"),
        (KAFSCALE, MarkerRole.INGEST, '{"users/12":5}', '{"orders":5}'),
        (KAFSCALE, MarkerRole.INGEST, '{"users/0":0}', '{"users/0":0,"others/0":5}'),
        (BUFFER, MarkerRole.INGEST, "12", "12/7"),
        (POSTGRES, MarkerRole.MERGE, "12", '{"a":5}'),
    ],
)
def test_a_position_must_be_one_of_its_source(
    document: Path, source: str, role: MarkerRole, good: str, bad: str
) -> None:
    config = config_of(document, source)
    check_position(parse_position(good), role, config)
    with pytest.raises(ConfigError, match="--to"):
        check_position(parse_position(bad), role, config)


@pytest.mark.parametrize("text", ["{", '{"a": "b"}', '{"a": -1}', '{"a": true}', '{"a": 1.5}'])
def test_offsets_must_be_numbers(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_position(text)


def marker(position: Position, *, epoch: int = 0, sequence: str | None = None) -> Marker:
    return Marker(
        pipeline="old", source="s", position=position, batch="b", epoch=epoch, sequence=sequence
    )


def goal(*known: Marker, position: str = "5", source: str | None = None) -> Marker:
    return plan_goal(known, pipeline="shop", position=position, source=source, batch="set-1")


def test_what_the_operator_does_not_say_is_taken_from_what_is_there() -> None:
    made = goal(marker("9", epoch=2, sequence="q9"), marker("5", epoch=1, sequence="q5"))
    assert (made.pipeline, made.source, made.position) == ("shop", "s", "5")
    assert (made.epoch, made.sequence, made.batch) == (2, "q5", "set-1")


def test_partitions_that_the_operator_does_not_name_stay() -> None:
    valid = marker({"orders/0": 5, "orders/1": 7})
    assert complete_position({"orders/0": 6}, valid, None) == {"orders/0": 6, "orders/1": 7}
    # What is not valid, or counts in something else, says nothing about them.
    assert complete_position({"orders/0": 6}, None, None) == {"orders/0": 6}
    assert complete_position({"orders/0": 6}, valid, "another") == {"orders/0": 6}
    assert complete_position("5", marker("9"), None) == "5"


def test_how_far_rows_were_merged_is_known_for_that_position_only() -> None:
    assert goal(marker("9", sequence="q9")).sequence is None
    assert goal(marker("5", sequence="q5"), source="another").sequence is None


def test_a_position_that_counts_in_nothing_known_is_refused() -> None:
    with pytest.raises(ConfigError, match="--source"):
        goal()
    assert goal(source="given").source == "given"


def test_setting_off_a_terminal_needs_a_yes(
    document: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config_of(document, MERGES)
    arguments = ["position", "set", "public.users", "--role", "merge", "--to", "5"]
    assert main([*arguments, "-c", str(document)]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert "--yes" in captured.err
    assert captured.out == ""
