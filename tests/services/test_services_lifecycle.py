"""What services keep, what they remove, and what they say when they cannot start."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psutil
import psycopg
import pytest

from frazil.demo.services import (
    ObjectStore,
    embedded_postgres,
    etcd,
    ports,
    rest_catalog,
    seaweedfs,
)
from frazil.demo.services.process import Launch, Service
from frazil.demo.services.seaweedfs import REGION, signed_headers
from frazil.demo.services.workspace import unprivileged_account
from frazil.errors import ServiceError
from frazil.hooks import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.services


def test_postgres_killed_and_restarted_keeps_its_data_its_slot_and_its_port() -> None:
    with embedded_postgres() as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("create table kept (id int)")
            connection.execute("insert into kept values (7)")
            connection.execute("select pg_create_logical_replication_slot('kept', 'pgoutput')")
            processes = psutil.Process(server.service.pid).children(recursive=True)
            server.kill()
        assert server.service.pid is None
        assert not [process for process in processes if process.is_running()]
        server.restart()
        assert "was interrupted" in server.log.read_text()
        with psycopg.connect(server.dsn) as connection:
            assert connection.execute("select id from kept").fetchall() == [(7,)]
            slots = connection.execute("select slot_name from pg_replication_slots")
            assert slots.fetchall() == [("kept",)]


def test_postgres_stops_cleanly_and_keeps_a_folder_that_was_given(shared_folder: Path) -> None:
    with embedded_postgres(folder=shared_folder) as server:
        with psycopg.connect(server.dsn) as connection:
            connection.execute("create table kept as select 7 as id")
        server.stop()
        assert server.log.read_text().rstrip().endswith("database system is shut down")
    with embedded_postgres(folder=shared_folder, settings={"work_mem": "5MB"}) as server:
        with psycopg.connect(server.dsn) as connection:
            assert connection.execute("select id from kept").fetchall() == [(7,)]
            assert connection.execute("show work_mem").fetchall() == [("5MB",)]
        assert "was interrupted" not in server.log.read_text()


def test_the_object_store_keeps_objects_through_a_crash_and_in_its_folder(tmp_path: Path) -> None:
    with seaweedfs(folder=tmp_path) as store:
        assert s3_request(store, "PUT", "kept", b"ice").status_code == 200
        store.kill()
        store.restart()
        assert s3_request(store, "GET", "kept").content == b"ice"
    with seaweedfs(folder=tmp_path) as store:
        assert s3_request(store, "GET", "kept").content == b"ice"


def s3_request(store: ObjectStore, method: str, key: str, body: bytes = b"") -> httpx.Response:
    path = f"/{store.bucket}/{key}"
    headers = signed_headers(
        method=method,
        host=store.endpoint.removeprefix("http://"),
        path=path,
        body=body,
        region=REGION,
        access_key=store.access_key,
        secret_key=store.secret_key,
        now=SystemClock().now(),
    )
    return httpx.request(method, store.endpoint + path, headers=headers, content=body)


def test_the_rest_catalog_keeps_namespaces_through_a_crash(tmp_path: Path) -> None:
    # A name that only a careful writer of XML gets right.
    folder = tmp_path / "a & <b>"
    with rest_catalog(folder=folder) as catalog:
        created = httpx.post(f"{catalog.uri}/v1/namespaces", json={"namespace": ["kept"]})
        assert created.status_code == 200
        catalog.kill()
        catalog.restart()
        assert httpx.get(f"{catalog.uri}/v1/namespaces", timeout=60).json()["namespaces"] == [
            ["kept"]
        ]


def test_etcd_keeps_keys_through_a_crash_and_in_its_folder(tmp_path: Path) -> None:
    def keys(endpoint: str) -> str:
        answer = httpx.post(f"{endpoint}/v3/kv/range", json={"key": "a2V5"}).json()
        return str(answer["kvs"][0]["value"])

    with etcd(folder=tmp_path) as server:
        httpx.post(f"{server.endpoint}/v3/kv/put", json={"key": "a2V5", "value": "aWNl"})
        server.kill()
        server.restart()
        assert keys(server.endpoint) == "aWNl"
    with etcd(folder=tmp_path) as server:
        assert keys(server.endpoint) == "aWNl"


def test_temporary_data_are_removed_unless_they_are_to_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with etcd():
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []
    with etcd(keep=True) as server:
        pass
    assert server.log.exists()
    assert (server.log.parent / "data").is_dir()


def test_temporary_data_are_removed_when_the_block_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    processes: list[psutil.Process] = []

    def fail() -> None:
        with etcd() as server:
            processes.append(psutil.Process(server.service.pid))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(tmp_path.iterdir()) == []
    assert not processes[0].is_running()


def test_a_bad_setting_is_one_sentence_with_a_log_that_outlives_the_data() -> None:
    with pytest.raises(ServiceError) as failed, embedded_postgres(settings={"wal_level": "solid"}):
        pass
    message = str(failed.value)
    assert message.startswith("postgres 18 exited with status 1; its log is ")
    assert 'invalid value for parameter "wal_level": "solid"' in message
    assert "\n" not in message
    (part,) = [part for part in message.split() if part.endswith(".log;")]
    log = Path(part.removesuffix(";"))
    assert "solid" in log.read_text()
    assert list(log.parent.iterdir()) == [log]
    log.unlink()
    log.parent.rmdir()


def test_a_damaged_data_directory_is_reported_with_the_log(shared_folder: Path) -> None:
    data = shared_folder / "data"
    data.mkdir(mode=0o700)
    (data / "PG_VERSION").write_text("18\n")
    account = unprivileged_account()
    if account is not None:
        os.chown(data, account.uid, account.gid)
    with (
        pytest.raises(ServiceError, match="not made here"),
        embedded_postgres(folder=shared_folder),
    ):
        pass
    (shared_folder / "password").write_text("secret")
    with pytest.raises(ServiceError) as failed, embedded_postgres(folder=shared_folder):
        pass
    assert str(shared_folder / "postgres-18.log") in str(failed.value)
    assert "postgresql.conf" in str(failed.value)


@pytest.fixture
def thief(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Takes the first port that is found free before the service can; the ports it took."""
    taken: list[int] = []
    honest = ports.free_ports
    with ExitStack() as sockets:

        def steal_once(count: int, *, offsets: tuple[int, ...] = (0,)) -> tuple[int, ...]:
            found = honest(count, offsets=offsets)
            if not taken:
                # Bound but deaf: the service cannot have the port, and our probes do not wait.
                holder = sockets.enter_context(socket.socket())
                holder.bind(("127.0.0.1", found[0]))
                taken.append(found[0])
            return found

        monkeypatch.setattr(ports, "free_ports", steal_once)
        yield taken


def test_a_port_taken_meanwhile_costs_another_attempt(thief: list[int]) -> None:
    with etcd() as server:
        assert [server.port] != thief
    assert len(thief) == 1


def doomed(folder: Path, built: list[int]) -> Callable[[tuple[int, ...]], Service]:
    def build(found: tuple[int, ...]) -> Service:
        built.extend(found)
        launch = Launch("doomed", ("/bin/sh", "-c", "exit 1"), folder, folder / "log", {})
        return Service(launch, lambda _: False)

    return build


def test_a_port_that_is_always_taken_costs_a_bounded_number_of_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        taken = holder.getsockname()[1]
        monkeypatch.setattr(ports, "free_ports", lambda count, *, offsets: (taken,) * count)  # noqa: ARG005
        with pytest.raises(ServiceError, match="doomed exited with status 1"):
            ports.start_on_free_ports(doomed(tmp_path, built), count=1)
    assert built == [taken] * 3


def test_a_failure_of_another_kind_is_not_tried_again(tmp_path: Path) -> None:
    built: list[int] = []
    with pytest.raises(ServiceError, match=r"doomed exited with status 1; its log is .* is empty"):
        ports.start_on_free_ports(doomed(tmp_path, built), count=1)
    assert len(built) == 1
