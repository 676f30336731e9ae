"""The lake's part of ``check``: what it says of catalogs and tables in every condition."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from frazil.changelog.layout import changelog_schema
from frazil.changelog.table import ChangelogTable
from frazil.cli.exit_codes import ExitCode
from frazil.cli.verbs import check as check_verb
from frazil.cli.verbs.check import check_lake, inspect_lake
from frazil.clients.iceberg.commit.strict_commit import FileChanges, StrictCommit
from frazil.clients.iceberg.lake import Lake, TableDefinition
from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from frazil.errors import CatalogError
from frazil.model.marker import Marker, MarkerMove, MarkerRole
from frazil.model.readers import Reader
from frazil.model.table_name import TableName
from frazil.pipeline.checks import SourceFindings, format_problem
from frazil.pipeline.tables.captured_names import captured_names
from tests.support.faults.proxy import Answer, HttpProxy
from tests.support.lake.files import SCHEMA, FileWriter
from tests.support.process.session_commands import run_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.config import Config
    from frazil.demo.services import RestCatalog
    from frazil.sources.findings import Findings

pytestmark = pytest.mark.spark


CATALOG = """
pipeline: shop
catalog:
  name: {catalog}
  kind: sql
  uri: 'sqlite:///{folder}/catalog.db'
  warehouse: 'file://{folder}/warehouse'
spark: {{master: 'local[1]', conf: {{spark.driver.memory: 1g}}}}
"""
MERGES = """
tables:
  - {mirror: public.users, changelog: public.users_changelog, key: [id]}
  - {mirror: public.gone, changelog: public.gone_changelog, key: [id]}
"""
SOURCE = "source: {kind: postgres, dsn: 'postgresql://h/d'}\n"
_NEWEST = b'"format-version":"3"'


@dataclass(frozen=True)
class Shop:
    """A catalog with one changelog in it, which is at 0/1."""

    document: Path
    catalog: str
    spark: SparkSession
    changelog: ChangelogTable

    def load(self, text: str = MERGES) -> Config:
        head = CATALOG.format(folder=self.document.parent, catalog=self.catalog)
        self.document.write_text(head + text)
        return load_config(self.document, environ={}).config

    def lake(self, config: Config) -> Lake:
        return Lake(attach_session(self.spark, config), self.catalog)

    def inspect(
        self,
        config: Config,
        *sources: str,
        not_made: Sequence[str] = (),
        readers: Sequence[Reader] = (),
    ) -> Findings:
        lake = self.lake(config)
        source = SourceFindings(names=captured_names(config, sources), not_made=frozenset(not_made))
        return inspect_lake(lake, config, source, readers)


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    # A name of its own, because a session keeps every catalog it has met.
    catalog = f"c_{tmp_path.name}"
    document = tmp_path / "frazil.yaml"
    document.write_text(CATALOG.format(folder=tmp_path, catalog=catalog) + MERGES)
    config = load_config(document, environ={}).config
    lake = Lake(attach_session(spark, config), catalog)
    name = TableName(catalog, ("public",), "users_changelog")
    schema = changelog_schema(SCHEMA.fields, ["id"])
    changelog = ChangelogTable.ensure(lake, name, schema=schema)
    added = FileWriter().write(changelog.table.load_state().location, [1])
    goal = Marker(pipeline="shop", source="a server", position="0/1", batch="b")
    changelog.table.commit(
        StrictCommit(
            move=MarkerMove(MarkerRole.INGEST, None, goal), changes=FileChanges(added=(added,))
        )
    )
    return Shop(document, catalog, spark, changelog)


def seen(findings: Findings) -> dict[str, str]:
    return {each.about: each.found for each in findings.checked}


def test_without_a_source_every_changelog_must_be_there(shop: Shop) -> None:
    findings = shop.inspect(shop.load())
    about = seen(findings)
    assert about["catalog"] == f"{shop.catalog}, kind sql, answers"
    assert about["public.users_changelog"] == "changelog is there, at 0/1"
    assert about["public.users"] == "mirror is not there yet: the first run creates it"
    assert "frazil.shop_ledger" not in about
    (problem,) = findings.problems
    assert problem.table == "public.gone_changelog"
    assert findings.must_be_fixed == 1


def test_with_a_source_the_captured_tables_are_inspected(shop: Shop) -> None:
    findings = shop.inspect(shop.load(SOURCE), "public.users", "public.orders")
    about = seen(findings)
    assert findings.problems == ()
    assert about["public.users_changelog"] == "changelog is there, at 0/1"
    for missing in ("public.users", "public.orders_changelog", "frazil.shop_ledger"):
        assert about[missing].endswith("is not there yet: the first run creates it")
    warehouse = shop.document.parent / "warehouse"
    assert (
        about["warehouse"] == f"file://{warehouse}: a table was created, written, read and removed"
    )
    # Nothing of it is left: no table, no namespace, no file.
    namespaces = shop.spark.sql(f"show namespaces in {shop.catalog}").collect()
    assert [row[0] for row in namespaces] == ["public"]
    assert [each for each in warehouse.rglob("*frazil_check*") if not _is_empty(each)] == []


def test_a_reader_that_does_not_know_deletion_vectors_is_named(shop: Shop) -> None:
    config = shop.load(SOURCE)
    mirror = TableName(shop.catalog, ("public",), "users")
    shop.lake(config).ensure_table(mirror, TableDefinition(schema=SCHEMA, format_version=3))
    assert not shop.inspect(config, "public.users", readers=[Reader.SPARK]).problems
    readers = [Reader.DUCKDB, Reader.TRINO]
    there, new = shop.inspect(config, "public.users", readers=readers).problems
    assert (there.severity.value, new.severity.value) == ("warns", "warns")
    assert there.sentence.startswith("trino is not known to read deletion vectors")
    assert "public.users of format 3" in there.sentence
    assert "set mirror.format_version: 2" in new.sentence
    older = shop.load(SOURCE + "mirror: {format_version: 2}\n")
    (there,) = shop.inspect(older, "public.users", readers=readers).problems
    assert "a table keeps the format" in there.sentence


def test_a_catalog_that_takes_no_table_of_format_3_comes_with_the_setting(
    spark: SparkSession, file_catalog: RestCatalog, tmp_path: Path
) -> None:
    refusal = {"error": {"message": "no such format", "type": "BadRequestException", "code": 400}}
    document = tmp_path / "frazil.yaml"
    with HttpProxy(file_catalog.uri) as proxy:
        catalog = f"{{name: old_{tmp_path.name}, kind: rest, uri: '{proxy.url}'}}"
        document.write_text(f"pipeline: {tmp_path.name}\ncatalog: {catalog}\n{SOURCE}")
        config = load_config(document, environ={}).config
        lake = Lake(attach_session(spark, config), config.catalog.name)
        # As often as it is tried.
        faults = [Answer(400, json.dumps(refusal).encode())] * 10
        proxy.script(lambda method, _, body: method == "POST" and _NEWEST in body, *faults)
        (problem,) = inspect_lake(lake, config, SourceFindings()).problems
    assert problem.severity.value == "stops"
    assert "takes no table of format 3" in problem.sentence
    assert "Set mirror.format_version: 2." in problem.sentence


def test_a_catalog_that_makes_another_format_than_was_asked_for_is_a_warning() -> None:
    assert format_problem(wanted=3, made=3) is None
    problem = format_problem(wanted=3, made=2)
    assert problem is not None
    assert problem.severity.value == "warns"
    assert "Set mirror.format_version: 2" in problem.sentence


def test_no_mirror_is_promised_to_a_table_that_gets_none(shop: Shop) -> None:
    not_made = ["public.keyless", "public.unlogged", "public.unlogged_changelog"]
    config = shop.load(SOURCE + "tables: [{mirror: public.keyless, order: append}]\n")
    findings = shop.inspect(config, "public.keyless", "public.unlogged", not_made=not_made)
    assert findings.problems == ()
    assert not set(not_made) & set(seen(findings))
    assert "public.keyless_changelog" in seen(findings)


def test_a_warehouse_that_cannot_be_written_to_is_a_problem(shop: Shop) -> None:
    config = shop.load(SOURCE)
    # There is a file where the folder of the namespace would be.
    (shop.document.parent / "warehouse" / "frazil").write_text("in the way")
    (problem,) = shop.inspect(config, "public.users").problems
    assert problem.severity.value == "stops"
    assert "cannot be written to" in problem.sentence
    namespaces = shop.spark.sql(f"show namespaces in {shop.catalog}").collect()
    assert [row[0] for row in namespaces] == ["public"]


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(each.is_file() for each in folder.rglob("*"))


def test_a_marker_that_is_lost_comes_with_the_command_that_repairs_it(shop: Shop) -> None:
    quoted = shop.changelog.table.name.quoted
    shop.spark.sql(f"alter table {quoted} unset tblproperties ('frazil.ingest')")
    (problem,) = shop.inspect(shop.load(SOURCE), "public.users").problems
    assert problem.table == "public.users_changelog"
    assert problem.sql == ("frazil resync public.users_changelog",)


def test_a_table_of_another_pipeline_is_a_problem(shop: Shop) -> None:
    config = shop.load(SOURCE).model_copy(update={"pipeline": "other"})
    (problem,) = shop.inspect(config, "public.users").problems
    assert "written by the pipeline shop" in problem.sentence
    assert problem.severity.value == "warns"


def test_a_catalog_that_cannot_be_opened_is_one_problem(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def attached(config: Config) -> Iterator[SparkSession]:
        yield attach_session(shop.spark, config)

    monkeypatch.setattr(check_verb, "open_session", attached)
    config = shop.load()
    catalog = config.catalog.model_copy(
        update={"name": f"away_{shop.catalog}", "uri": "sqlite:////proc/nowhere/catalog.db"}
    )
    findings = check_lake(config.model_copy(update={"catalog": catalog}), SourceFindings())
    (problem,) = findings.problems
    assert isinstance(findings.error, CatalogError)
    assert findings.checked == ()
    assert "that the catalog runs" in problem.sentence


def test_the_command_inspects_the_lake_and_ends_with_its_status(shop: Shop) -> None:
    shop.load()
    ended = run_on(shop.spark, "check", "-c", str(shop.document), "-o", "json")
    assert ended.returncode == ExitCode.FAILED, ended.stderr
    found = json.loads(ended.stdout)
    assert [each["table"] for each in found["problems"]] == ["public.gone_changelog"]
    assert {each["about"] for each in found["looked_at"]} == {
        "catalog",
        "warehouse",
        "public.users_changelog",
        "public.users",
        "public.gone",
    }
