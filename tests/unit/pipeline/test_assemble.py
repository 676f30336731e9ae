"""From the document to the settings of a merge."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from frazil.config import load_config
from frazil.errors import ConfigError
from frazil.merge.planning.settings import MergeSettings, WriteSettings
from frazil.model.policy import Deletes, Evolution, OnDrop, Order
from frazil.pipeline.tables.merge_settings import merge_settings, merge_tables, retry_policy

if TYPE_CHECKING:
    from frazil.config import Config

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

DOCUMENT = """
pipeline: shop
catalog: {name: ice, kind: sql, uri: 'sqlite:///c.db', warehouse: 'file:///wh'}
mirror:
  format_version: 2
  sort_by: [id]
  write: {target_file_size: 64MiB, compression: none, row_group_rows: 1000}
  index: {young_entries: 10, max_runs: 3, cache_dir: ./index-cache, cache_bytes: 1GiB}
merge: {max_rows: 77}
retry: {attempts: 9, base: 2s, max: 1m}
tables:
  - {mirror: public.users, changelog: public.users_changelog, key: [id]}
  - mirror: deep.er.lines
    changelog: elsewhere.lines_log
    key: [order_id, line]
    sequence: lsn
    operation: op
    order: per_key
    tombstones: 3d
    column_prefix: _cdc_
    deletes: soft
    on_drop: drop
    evolution: strict
    format_version: 3
    partition_by: ["day(created_at)"]
    write: {compression: lz4}
    index: {cache_dir: /fast/cache}
"""


def load(tmp_path: Path, text: str = DOCUMENT) -> Config:
    document = tmp_path / "frazil.yaml"
    document.write_text(text)
    return load_config(document, environ={}).config


def test_every_setting_of_a_table_reaches_its_merge(tmp_path: Path) -> None:
    settings = merge_settings(load(tmp_path), "deep.er.lines")
    assert (settings.changelog.catalog, settings.mirror.catalog) == ("ice", "ice")
    assert settings.changelog.quoted == "`ice`.`elsewhere`.`lines_log`"
    assert settings.mirror.quoted == "`ice`.`deep`.`er`.`lines`"
    assert settings.key == ("order_id", "line")
    assert (settings.sequence, settings.operation) == ("lsn", "op")
    assert (settings.unchanged, settings.previous_key) == ("_cdc_unchanged", "_cdc_previous_key")
    assert {"_cdc_timestamp", "_cdc_lsn"} <= set(settings.bookkeeping)
    assert settings.pipeline == "shop"
    assert (settings.order, settings.tombstones) == (Order.PER_KEY, timedelta(days=3))
    assert settings.deletes is Deletes.SOFT
    assert settings.on_drop is OnDrop.DROP
    assert settings.evolution is Evolution.STRICT
    assert settings.format_version == 3
    assert settings.partition_by == ("day(created_at)",)
    assert settings.sort_by == ("id",)
    assert settings.max_rows == 77
    assert settings.write == WriteSettings(
        target_file_bytes=64 * 2**20, compression="lz4_raw", row_group_rows=1000
    )
    assert settings.index.cache_dir == Path("/fast/cache")
    assert (settings.index.young_entries, settings.index.max_runs) == (10, 3)
    assert settings.index.cache_bytes == 2**30


def test_a_table_that_says_nothing_gets_what_holds_for_all(tmp_path: Path) -> None:
    settings = merge_settings(load(tmp_path), "public.users")
    assert (settings.sequence, settings.operation) == ("cdc_sequence_number", "cdc_operation")
    assert settings.bookkeeping == ("cdc_timestamp", "cdc_lsn")
    assert settings.order is Order.APPEND
    assert settings.format_version == 2
    assert settings.write.compression == "uncompressed"
    # Relative to the document, wherever the process was started.
    assert settings.index.cache_dir == tmp_path / "index-cache"


def test_the_settings_of_the_document_and_of_the_merge_have_the_same_defaults(
    tmp_path: Path,
) -> None:
    config = load(
        tmp_path,
        "pipeline: frazil\n"
        "catalog: {kind: sql, uri: 'sqlite:///c.db', warehouse: 'file:///wh'}\n"
        "tables: [{mirror: a.b, changelog: a.c, key: [id]}]\n",
    )
    found = merge_settings(config, "a.b")
    plain = MergeSettings(changelog=found.changelog, mirror=found.mirror, key=("id",))
    assert found.write == plain.write
    assert found.index.cache_dir == tmp_path / plain.index.cache_dir
    for name in MergeSettings.__dataclass_fields__.keys() - {"index"}:
        assert getattr(found, name) == getattr(plain, name), name


def test_our_columns_of_a_table_with_its_own_sequence_do_not_reach_the_mirror(
    tmp_path: Path,
) -> None:
    settings = merge_settings(load(tmp_path), "deep.er.lines")
    assert {"_cdc_operation", "_cdc_sequence_number"} <= set(settings.bookkeeping)


def test_tables_are_merged_in_the_order_of_the_document(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert merge_tables(config) == ("public.users", "deep.er.lines")
    assert merge_tables(config, ["deep.er.lines", "public.users"]) == merge_tables(config)
    assert merge_tables(config, ["deep.er.lines"]) == ("deep.er.lines",)


def test_a_table_may_be_chosen_by_its_changelog(tmp_path: Path) -> None:
    config = load(tmp_path)
    chosen = ["elsewhere.lines_log", "deep.er.lines"]
    assert merge_tables(config, chosen) == ("deep.er.lines",)


def test_an_unknown_table_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'public.user' is not .* did you mean public.users\?"):
        merge_tables(load(tmp_path), ["public.user"])
    with pytest.raises(ConfigError, match=r"'x' is not among the tables to merge\."):
        merge_tables(load(tmp_path), ["x"])


def test_a_source_that_decides_its_tables_leaves_none_to_merge_alone() -> None:
    environ = {"DATABASE_URL": "postgresql://localhost/shop"}
    config = load_config(EXAMPLES / "postgres.yaml", environ=environ).config
    with pytest.raises(ConfigError, match=r"nothing was captured.*frazil ingest --once"):
        merge_tables(config)


def test_a_table_without_changelog_or_key_has_no_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="changelog and its key"):
        merge_settings(load(tmp_path), "public.unlisted")


def test_the_mergers_document_is_merged_by_key() -> None:
    config = load_config(EXAMPLES / "merger.yaml", environ={}).config
    assert merge_tables(config) == ("public.users", "public.orders")
    settings = merge_settings(config, "public.orders")
    assert settings.order is Order.PER_KEY
    assert settings.key == ("tenant_id", "id")
    assert settings.max_rows == 10_000
    assert settings.index.cache_dir.is_absolute()


def test_waits_and_attempts_are_those_of_the_document(tmp_path: Path) -> None:
    retry = retry_policy(load(tmp_path))
    assert (retry.attempts, retry.base_seconds, retry.longest_seconds) == (9, 2.0, 60.0)
