"""Every embedded service does its job, for those who may, and only on the loopback."""

from __future__ import annotations

import base64
import ipaddress
import socket
import time
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

import boto3
import httpx
import psutil
import psycopg
import pyarrow as pa
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from psycopg import pq
from pyiceberg.catalog import Catalog, load_catalog

from frazil.demo.services.packages import package_folder, packaged_script
from frazil.errors import RuntimeMissingError

if TYPE_CHECKING:
    from frazil.demo.services import EtcdServer, ObjectStore, Postgres, RestCatalog

pytestmark = pytest.mark.services


@pytest.fixture(params=["postgres", "postgres_16"])
def any_postgres(request: pytest.FixtureRequest) -> Postgres:
    server: Postgres = request.getfixturevalue(request.param)
    return server


def s3_client(store: ObjectStore, *, secret_key: str | None = None) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=store.endpoint,
        region_name=store.region,
        aws_access_key_id=store.access_key,
        aws_secret_access_key=secret_key or store.secret_key,
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
    )


def test_postgres_is_of_the_requested_version(any_postgres: Postgres) -> None:
    with psycopg.connect(any_postgres.dsn) as connection:
        assert connection.info.server_version // 10_000 == any_postgres.version


def test_postgres_refuses_a_wrong_password(postgres: Postgres) -> None:
    wrong = postgres.dsn.replace(postgres.password, "wrong")
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(wrong)


def test_postgres_decodes_changes_for_a_slot(any_postgres: Postgres) -> None:
    with psycopg.connect(any_postgres.dsn, autocommit=True) as connection:
        connection.execute("create table decoded (id int primary key, word text)")
        connection.execute("create publication decoded_p for table decoded")
        connection.execute("select pg_create_logical_replication_slot('decoded_s', 'pgoutput')")
        connection.execute("insert into decoded values (1, 'frazil')")
        kinds = [kind for kind, _ in stream(any_postgres, "decoded_s", "decoded_p", until=b"C")]
        # The server notices a moment later that the reader has gone.
        while connection.execute("select 1 from pg_replication_slots where active").fetchone():
            time.sleep(0.02)
        connection.execute("select pg_drop_replication_slot('decoded_s')")
    assert kinds == [b"B", b"R", b"I", b"C"]


def stream(
    server: Postgres, slot: str, publication: str, *, until: bytes
) -> list[tuple[bytes, bytes]]:
    """Read a slot over the replication protocol up to the first message of a kind."""
    messages: list[tuple[bytes, bytes]] = []
    # Not the connection's own block, which would send a commit into the running copy.
    with closing(
        psycopg.connect(f"{server.dsn}?replication=database", autocommit=True)
    ) as connection:
        command = (
            f"START_REPLICATION SLOT {slot} LOGICAL 0/0 "
            f"(proto_version '1', publication_names '{publication}')"
        )
        started = connection.pgconn.exec_(command.encode())
        assert started.status == pq.ExecStatus.COPY_BOTH
        while not messages or messages[-1][0] != until:
            _, data = connection.pgconn.get_copy_data(0)
            # w: position, position, time of 8 bytes each, then the plugin's own message.
            if bytes(data[:1]) == b"w":
                messages.append((bytes(data[25:26]), bytes(data[26:])))
    return messages


def test_an_object_can_be_put_and_got(object_store: ObjectStore) -> None:
    s3 = s3_client(object_store)
    s3.put_object(Bucket=object_store.bucket, Key="a/b", Body=b"ice")
    assert s3.get_object(Bucket=object_store.bucket, Key="a/b")["Body"].read() == b"ice"


def test_a_fresh_object_store_is_empty_in_spite_of_our_probe(object_store: ObjectStore) -> None:
    listed = s3_client(object_store).list_objects_v2(Bucket=object_store.bucket, Prefix=".")
    assert listed["KeyCount"] == 0


def test_a_conditional_put_does_not_overwrite(object_store: ObjectStore) -> None:
    s3 = s3_client(object_store)
    put = {"Bucket": object_store.bucket, "Key": "once", "IfNoneMatch": "*"}
    s3.put_object(**put, Body=b"first")
    with pytest.raises(ClientError) as refused:
        s3.put_object(**put, Body=b"second")
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    assert s3.get_object(Bucket=object_store.bucket, Key="once")["Body"].read() == b"first"


def test_a_wrong_secret_is_refused(object_store: ObjectStore) -> None:
    with pytest.raises(ClientError) as refused:
        s3_client(object_store, secret_key="wrong").list_objects_v2(Bucket=object_store.bucket)
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def write_and_read(catalog: Catalog) -> None:
    namespace = f"n{uuid.uuid4().hex[:8]}"
    catalog.create_namespace(namespace)
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "word": ["a", "b", "c"]})
    table = catalog.create_table(f"{namespace}.items", schema=rows.schema)
    table.append(rows)
    assert catalog.load_table(f"{namespace}.items").scan().to_arrow().equals(rows)


def test_the_rest_catalog_keeps_tables_in_a_folder(file_catalog: RestCatalog) -> None:
    with load_catalog("r", type="rest", uri=file_catalog.uri) as catalog:
        write_and_read(catalog)


def test_the_rest_catalog_keeps_tables_in_the_object_store(
    s3_catalog: RestCatalog, object_store: ObjectStore
) -> None:
    properties = {"type": "rest", "uri": s3_catalog.uri, **object_store.io_properties()}
    with load_catalog("r", **properties) as catalog:
        write_and_read(catalog)
    listed = s3_client(object_store).list_objects_v2(Bucket=object_store.bucket, Prefix="warehouse")
    assert {key["Key"].rsplit(".", 1)[-1] for key in listed["Contents"]} >= {"json", "parquet"}


def seaweed_properties(store: ObjectStore, *, credential: str) -> dict[str, str]:
    return {
        "type": "rest",
        "uri": store.iceberg_uri,
        "warehouse": f"s3://{store.table_bucket}",
        "credential": credential,
        "oauth2-server-uri": store.token_uri,
        **store.io_properties(),
    }


def test_the_object_stores_own_catalog_works_with_its_credential(object_store: ObjectStore) -> None:
    properties = seaweed_properties(object_store, credential=object_store.iceberg_credential)
    with load_catalog("w", **properties) as catalog:
        write_and_read(catalog)


def test_the_object_stores_own_catalog_refuses_another_credential(
    object_store: ObjectStore,
) -> None:
    form = {
        "grant_type": "client_credentials",
        "client_id": object_store.access_key,
        "client_secret": "wrong",
    }
    assert httpx.post(object_store.token_uri, data=form).status_code == 401
    namespaces = f"{object_store.iceberg_uri}/v1/{object_store.table_bucket}/namespaces"
    assert httpx.get(namespaces, timeout=60).status_code in {401, 403}


def test_an_etcd_key_ends_with_its_lease(etcd: EtcdServer) -> None:
    key = base64.b64encode(b"frazil/leader").decode()
    with httpx.Client(base_url=etcd.endpoint, timeout=60) as client:
        lease = client.post("/v3/lease/grant", json={"TTL": 1}).json()["ID"]
        client.post("/v3/kv/put", json={"key": key, "value": key, "lease": lease})
        assert "kvs" in client.post("/v3/kv/range", json={"key": key}).json()
        deadline = time.monotonic() + 60
        while "kvs" in client.post("/v3/kv/range", json={"key": key}).json():
            assert time.monotonic() < deadline
            time.sleep(0.05)


EVERY_SERVICE = ("postgres", "postgres_16", "object_store", "file_catalog", "s3_catalog", "etcd")


@pytest.fixture
def secrets(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """What no one may see of the services, which all run now."""
    services = {name: request.getfixturevalue(name) for name in EVERY_SERVICE}
    return (
        services["postgres"].password,
        services["postgres_16"].password,
        services["object_store"].secret_key,
    )


def test_everything_listens_on_the_loopback_only(secrets: tuple[str, ...]) -> None:
    del secrets
    open_sockets = [
        connection
        for process in psutil.Process().children(recursive=True)
        for connection in inet_sockets(process)
        if connection.status == psutil.CONN_LISTEN or connection.type == socket.SOCK_DGRAM
    ]
    # Two servers each of Postgres and of the catalog, etcd's two and SeaweedFS's eleven.
    assert len(open_sockets) >= 17
    outside = [
        connection
        for connection in open_sockets
        if not ipaddress.ip_address(connection.laddr.ip).is_loopback
    ]
    assert outside == []


def inet_sockets(process: psutil.Process) -> list[Any]:
    try:
        return list(process.net_connections("inet"))
    except psutil.NoSuchProcess:
        return []


def test_no_secret_is_in_any_process_argument(secrets: tuple[str, ...]) -> None:
    for process in psutil.Process().children(recursive=True):
        try:
            arguments = " ".join(process.cmdline())
        except psutil.NoSuchProcess:
            continue
        assert not [secret for secret in secrets if secret in arguments]


def test_no_secret_is_in_a_log_or_a_representation(
    secrets: tuple[str, ...],
    postgres: Postgres,
    object_store: ObjectStore,
    s3_catalog: RestCatalog,
) -> None:
    text = "".join(
        f"{service!r}{service.service.launch!r}{service.log.read_text()}"
        for service in (postgres, object_store, s3_catalog)
    )
    assert not [secret for secret in secrets if secret in text]


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(RuntimeMissingError, match=r"pip install 'frazil\[demo,demo-kafscale\]'"):
        package_folder("no_such_package_of_frazil")
    with pytest.raises(RuntimeMissingError, match=r"pip install 'frazil\[demo,demo-kafscale\]'"):
        packaged_script("no-such-package-of-frazil", "weed")
