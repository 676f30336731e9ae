from __future__ import annotations

import pickle

import pyarrow.fs as pf
import pytest

from frazil.clients.iceberg.file_system import OutputFiles, plan_store
from frazil.clients.iceberg.write.write_target import BloomFilter, WriteTarget, plan_write_target
from frazil.errors import ConfigError, StorageError, UnsupportedSchemaChangeError
from frazil.model.schema.partitioning import PartitionField, PartitionSpec, parse_transform
from frazil.model.schema.types import Field, Primitive, Schema

SCHEMA = Schema(0, (Field(1, "id", Primitive.LONG), Field(2, "on", Primitive.BOOLEAN)))


def planned(**properties: str) -> WriteTarget:
    named = {name.replace("__", "-").replace("_", "."): text for name, text in properties.items()}
    return plan_write_target(
        table="db.t", location="s3://b/t", schema=SCHEMA, properties=named, io_properties={"k": "v"}
    )


def test_without_properties_our_defaults_apply() -> None:
    target = planned()
    assert target.data_location == "s3://b/t/data"
    assert target.compression == "zstd"
    assert target.target_file_bytes == 128 * 2**20
    assert target.bound_lengths == ((1, 16), (2, 16))


def test_the_tables_properties_win() -> None:
    target = planned(
        write_target__file__size__bytes="1000",
        write_parquet_compression__codec="GZIP",
        write_parquet_compression__level="5",
        write_parquet_row__group__size__bytes="4096",
        write_data_path="s3://other/path/",
    )
    assert (target.target_file_bytes, target.row_group_bytes) == (1000, 4096)
    assert (target.compression, target.compression_level) == ("gzip", 5)
    assert target.data_location == "s3://other/path"


def test_a_target_is_picklable_and_hides_its_credentials() -> None:
    target = plan_write_target(
        table="t",
        location="x",
        schema=SCHEMA,
        properties={},
        io_properties={"s3.secret-access-key": "c0ffee"},
    )
    assert pickle.loads(pickle.dumps(target)) == target
    assert "c0ffee" not in repr(target)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encryption.key-id", "k"),
        ("write.location-provider.impl", "com.example.Paths"),
        ("write.object-storage.path", "s3://x"),
        ("write.folder-storage.path", "s3://x"),
        ("write.format.default", "orc"),
        ("write.parquet.compression-codec", "lzo"),
        ("write.parquet.compression-codec", "lz4"),
        ("write.target-file-size-bytes", "much"),
        ("write.parquet.bloom-filter-enabled.column.missing", "true"),
        ("write.parquet.bloom-filter-enabled.column.on", "true"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        plan_write_target(
            table="db.t", location="x", schema=SCHEMA, properties={name: value}, io_properties={}
        )
    assert name in str(refusal.value)
    assert "db.t" in str(refusal.value)


def test_bloom_filters_are_taken_from_the_table() -> None:
    properties = {
        "write.parquet.bloom-filter-enabled.column.id": "true",
        "write.parquet.bloom-filter-fpp.column.id": "0.05",
        "write.parquet.bloom-filter-ndv.column.id": "1000",
        "write.parquet.bloom-filter-enabled.column.on": "false",
    }
    target = plan_write_target(
        table="t", location="x", schema=SCHEMA, properties=properties, io_properties={}
    )
    assert target.bloom_filters == (BloomFilter("id", 0.05, 1000),)


@pytest.mark.parametrize("text", ["0", "1", "often", "nan"])
def test_an_invalid_false_positive_rate_is_refused_by_name(text: str) -> None:
    name = "write.parquet.bloom-filter-fpp.column.id"
    properties = {"write.parquet.bloom-filter-enabled.column.id": "true", name: text}
    with pytest.raises(ConfigError, match=name):
        plan_write_target(
            table="t", location="x", schema=SCHEMA, properties=properties, io_properties={}
        )


def test_a_spec_of_another_schema_is_refused() -> None:
    spec = PartitionSpec(0, (PartitionField(9, 1000, "gone", parse_transform("identity")),))
    with pytest.raises(UnsupportedSchemaChangeError, match="'gone'"):
        plan_write_target(
            table="t", location="x", schema=SCHEMA, spec=spec, properties={}, io_properties={}
        )


KEYS = {"s3.access-key-id": "a", "s3.secret-access-key": "b"}


@pytest.mark.parametrize(
    ("location", "properties", "kind", "path", "arguments"),
    [
        ("/x/y.parquet", {}, pf.LocalFileSystem, "/x/y.parquet", {}),
        ("file:/x/a%20b", {}, pf.LocalFileSystem, "/x/a%20b", {}),
        ("file:///x/y", {}, pf.LocalFileSystem, "/x/y", {}),
        (
            "s3://b/k=%2F/f",
            {**KEYS, "s3.endpoint": "http://h:1", "s3.path-style-access": "true"},
            pf.S3FileSystem,
            "b/k=%2F/f",
            {
                "access_key": "a",
                "secret_key": "b",
                "region": "us-east-1",
                "endpoint_override": "http://h:1",
            },
        ),
        (
            "s3a://b/f",
            {**KEYS, "s3.session-token": "t", "client.region": "eu-north-1"},
            pf.S3FileSystem,
            "b/f",
            {"access_key": "a", "secret_key": "b", "session_token": "t", "region": "eu-north-1"},
        ),
        (
            "s3://b/f",
            {"s3.endpoint": "https://h"},
            pf.S3FileSystem,
            "b/f",
            {
                "region": "us-east-1",
                "endpoint_override": "https://h",
                "force_virtual_addressing": True,
            },
        ),
        ("s3://b/f", {"s3.sse.type": "none"}, pf.S3FileSystem, "b/f", {}),
        ("gs://b/f", {"gcs.project-id": "p"}, pf.GcsFileSystem, "b/f", {"project_id": "p"}),
        (
            "gs://b/f",
            {"gcs.no-auth": "true", "gcs.service.host": "http://localhost:1"},
            pf.GcsFileSystem,
            "b/f",
            {"anonymous": True, "scheme": "http", "endpoint_override": "localhost:1"},
        ),
        (
            "abfss://c@acc.dfs.core.windows.net/p/f",
            {"adls.auth.shared-key.account.name": "acc", "adls.auth.shared-key.account.key": "k"},
            pf.AzureFileSystem,
            "c/p/f",
            {"account_name": "acc", "account_key": "k"},
        ),
        (
            "abfss://c@acc.dfs.core.windows.net/p/f",
            {"adls.sas-token.acc.dfs.core.windows.net": "s"},
            pf.AzureFileSystem,
            "c/p/f",
            {"account_name": "acc", "sas_token": "s"},
        ),
    ],
)
def test_a_location_is_opened_by_the_file_system_it_names(
    location: str,
    properties: dict[str, str],
    kind: type[pf.FileSystem],
    path: str,
    arguments: dict[str, object],
) -> None:
    store = plan_store(location, properties)
    assert (store.kind, store.path) == (kind, path)
    assert dict(store.arguments) == arguments
    # Arrow takes these very arguments.
    kind(**arguments)


def test_a_vended_token_keeps_its_end() -> None:
    properties = {"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": "1700000000000"}
    arguments = dict(plan_store("gs://b/f", properties).arguments)
    assert arguments["access_token"] == "t"
    assert str(arguments["credential_token_expiration"]) == "2023-11-14 22:13:20+00:00"
    pf.GcsFileSystem(**arguments)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("s3.sse.type", "kms"),
        ("s3.sse.type", "s3"),
        ("s3.sse.type", "custom"),
        ("s3.remote-signing-enabled", "true"),
        ("s3.write.tags.team", "a"),
        ("s3.write.storage-class", "GLACIER"),
        ("s3.access-points.b", "arn"),
        ("s3.acl", "private"),
        ("client.factory", "com.example.Factory"),
        ("client.credentials-provider", "com.example.Provider"),
    ],
)
def test_what_arrow_cannot_do_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        plan_store("s3://b/f", {name: value})
    # A table in a folder does not care.
    plan_store("file:/x", {name: value})


@pytest.mark.parametrize(
    "location", ["hdfs://h/x", "file://host/x", "abfss://container/x", "oss://b/x"]
)
def test_an_unknown_store_is_refused(location: str) -> None:
    with pytest.raises(ConfigError):
        plan_store(location, {})


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: object) -> None:
    blocker = f"{tmp_path}/file"
    with open(blocker, "w", encoding="utf-8"):  # noqa: PTH123
        pass
    with pytest.raises(StorageError, match="cannot be created") as failure:
        OutputFiles({}).create(f"{blocker}/x.parquet")
    assert isinstance(failure.value.__cause__, OSError)
