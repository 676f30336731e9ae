"""Names that need quoting, and the ways to sign in to a catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from frazil.clients.iceberg.commit.strict_commit import FileChanges, StrictCommit
from frazil.clients.iceberg.lake import Lake, TableDefinition
from frazil.clients.spark.session import attach_session
from frazil.config import load_config
from frazil.errors import PermissionError as Refused
from frazil.errors import TableNotFoundError
from frazil.model.marker import Marker, MarkerMove, MarkerRole
from frazil.model.schema.layout_expressions import plan_partition_spec, plan_sort_order
from frazil.model.table_name import TableName
from tests.support.lake.catalogs import Kind
from tests.support.lake.files import SCHEMA
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import ObjectStore
    from tests.support.lake.catalogs import LakeCase

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("kind", sampled([Kind.SQLITE_FILE, Kind.REST_S3], ci={Kind.REST_S3}))
@pytest.mark.parametrize(
    "part", ["users; drop table x", "`quoted`", "it's", 'say "x"', "ünï", "表", "a b", "n" * 200]
)
def test_a_table_with_a_strange_name_is_made_written_and_read(
    lake_of: Callable[[Kind], LakeCase], kind: Kind, part: str
) -> None:
    case = lake_of(kind)
    name = TableName(case.catalog, ("strange",), part)
    table = case.lake.ensure_table(name, TableDefinition(schema=SCHEMA))
    location = table.load_state().location
    file = case.files.write(location, [1])
    goal = Marker(pipeline="p", source="s", position="1", batch="b")
    table.commit(
        StrictCommit(
            move=MarkerMove(MarkerRole.INGEST, None, goal), changes=FileChanges(added=(file,))
        )
    )
    assert [row.id for row in table.read().collect()] == [1]
    assert case.lake.open(name).load_marker(MarkerRole.INGEST) is not None


@pytest.mark.parametrize("kind", [Kind.SQLITE_FILE, Kind.REST_S3], ids=str)
@pytest.mark.parametrize("version", [2, 3])
def test_a_table_is_made_as_it_was_defined(
    lake_of: Callable[[Kind], LakeCase], kind: Kind, version: int
) -> None:
    case = lake_of(kind)
    spec = plan_partition_spec(["bucket(4, id)", "truncate(3, name)"], SCHEMA)
    definition = TableDefinition(
        schema=SCHEMA,
        spec=spec,
        sort_order=plan_sort_order(["name desc"], SCHEMA),
        format_version=version,
        properties={"comment": "it's mine"},
    )
    name = TableName(case.catalog, ("a", "b"), f"t_{uuid4().hex[:8]}")
    made = case.lake.ensure_table(name, definition)
    assert made.load_schema() == SCHEMA
    loaded = made.load_version()
    assert loaded.spec == spec
    assert loaded.sort_order == definition.sort_order
    state = made.load_state()
    assert state.format_version == version
    assert state.properties["comment"] == "it's mine"
    # A second call returns the same table, whatever its definition.
    again = case.lake.ensure_table(name, TableDefinition(schema=SCHEMA))
    assert again.load_state().uuid == state.uuid


def test_a_table_that_does_not_exist_is_named(lake_of: Callable[[Kind], LakeCase]) -> None:
    case = lake_of(Kind.REST_S3)
    with pytest.raises(TableNotFoundError, match=r"nowhere\.at_all: opening the table failed"):
        case.lake.open(TableName(case.catalog, ("nowhere",), "at_all"))


def lake_with(spark: SparkSession, folder: Path, store: ObjectStore, sign_in: str) -> Lake:
    name = f"signed_{uuid4().hex[:8]}"
    document = folder / f"{name}.yaml"
    document.write_text(
        f"pipeline: tests\n"
        f"catalog: {{name: {name}, kind: rest, uri: '{store.iceberg_uri}', "
        f"warehouse: 's3://{store.table_bucket}', {sign_in}}}\n"
        f"storage: {{s3: {{endpoint: '{store.endpoint}', path_style: true, "
        f"access_key_id: '{store.access_key}', secret_access_key: '{store.secret_key}'}}}}\n"
        "tables: [{mirror: a.b, changelog: a.c, key: [id]}]\n"
    )
    attach_session(spark, load_config(document, environ={}).config)
    lake = Lake(spark, name)
    lake.ensure_namespace(TableName(name, ("signed",), "t"))
    return lake


def test_requests_signed_the_aws_way_are_accepted(
    spark: SparkSession, tmp_path: Path, object_store: ObjectStore
) -> None:
    lake_with(spark, tmp_path, object_store, "sigv4: {region: us-east-1, service: s3}")


def test_client_credentials_are_exchanged_for_a_token(
    spark: SparkSession, tmp_path: Path, object_store: ObjectStore
) -> None:
    sign_in = (
        f"credential: '{object_store.iceberg_credential}', "
        f"oauth2_server_uri: '{object_store.token_uri}'"
    )
    lake_with(spark, tmp_path, object_store, sign_in)


def test_wrong_credentials_are_refused_without_being_repeated(
    spark: SparkSession, tmp_path: Path, object_store: ObjectStore
) -> None:
    sign_in = f"credential: 'unknown:canary-71', oauth2_server_uri: '{object_store.token_uri}'"
    with pytest.raises(Refused) as refused:
        lake_with(spark, tmp_path, object_store, sign_in)
    assert "canary-71" not in str(refused.value)
