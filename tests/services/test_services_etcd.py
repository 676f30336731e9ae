"""Our client of etcd: with passwords and TLS, through outages, and never twice."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from pydantic import SecretStr

from frazil.clients.etcd.client import Etcd
from frazil.clients.etcd.transactions import (
    DeleteKey,
    Equals,
    Fact,
    Put,
    Range,
    Txn,
    UnchangedSince,
)
from frazil.demo.services import etcd as start_etcd
from frazil.demo.services.etcd import BUILT_VERSION, built_program
from frazil.errors import (
    ConfigError,
    LeaseLostError,
    PermissionError,  # noqa: A004 - the published name of this error
    SourceUnavailableError,
)
from tests.support.faults.proxy import Answer, AnswerInstead, HttpProxy, LoseReply, Refuse, TimeOut
from tests.support.faults.tls_front import make_certificate
from tests.support.kafscale.etcd_history import request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.demo.services import EtcdServer

pytestmark = pytest.mark.services

NOWHERE = "http://127.0.0.1:9"
PASSWORD = "canary-7d1e"


@pytest.fixture
def key() -> str:
    return f"test/{uuid.uuid4().hex}"


@pytest.fixture
def client(etcd: EtcdServer) -> Etcd:
    return Etcd([etcd.endpoint])


def value_of(client: Etcd, key: str) -> bytes | None:
    (found,) = client.read_each([Range(key)])
    return found[0].value if found else None


def every(_method: str, _path: str, _body: bytes) -> bool:
    return True


def test_the_tests_run_on_a_current_release(etcd: EtcdServer) -> None:
    found = httpx.get(f"{etcd.endpoint}/version").json()["etcdserver"]
    # Where nothing can be built the package serves, and nothing in between.
    assert found == BUILT_VERSION if built_program().is_file() else found.startswith("3.5.")
    module = Path(__file__).parents[2] / "tools" / "etcd" / "go.mod"
    assert re.search(r"etcd/server/v3 v(\S+)", module.read_text())[1] == BUILT_VERSION  # type: ignore[index]


def test_a_transaction_does_one_thing_or_the_other(client: Etcd, key: str) -> None:
    absent = [Equals(key, Fact.VERSION, 0)]
    first = client.commit(Txn([Put(key, b"1")], given=absent))
    second = client.commit(Txn([Put(key, b"2")], given=absent, otherwise=[Range(key)]))
    assert (first.succeeded, second.succeeded) == (True, False)
    ((found,),) = second.found
    assert (found.key, found.value) == (key, b"1")
    assert found.create_revision == found.mod_revision == first.revision


def test_transactions_of_one_request_succeed_each_by_itself(client: Etcd, key: str) -> None:
    client.commit(Txn([Put(f"{key}/7", b"taken")]))
    outcomes = client.commit_each(
        [
            Txn([Put(f"{key}/{each}", b"")], given=[Equals(f"{key}/{each}", Fact.VERSION, 0)])
            for each in range(300)
        ]
    )
    assert [each for each, outcome in enumerate(outcomes) if not outcome.succeeded] == [7]
    found = client.read_each([Range(f"{key}/{each}", only_keys=True) for each in range(301)])
    assert [len(each) for each in found] == [1] * 300 + [0]


def test_a_prefix_is_compared_as_a_whole(client: Etcd, key: str) -> None:
    then = client.commit(Txn([Put(f"{key}/a", b""), Put(f"{key}/b", b"")])).revision
    unchanged = Txn([Put(f"{key}!", b"")], given=[UnchangedSince(f"{key}/", then)])
    assert client.commit(unchanged).succeeded
    client.commit(Txn([Put(f"{key}/c", b"")]))
    assert not client.commit(unchanged).succeeded


def test_a_lease_that_has_ended_is_known_by_every_request(client: Etcd, key: str) -> None:
    lease, seconds = client.grant_lease(5)
    assert seconds >= 5
    assert client.keep_lease_alive(lease) == seconds
    client.commit(Txn([Put(key, b"", lease)]))
    client.revoke_lease(lease)
    assert value_of(client, key) is None
    client.revoke_lease(lease)
    assert client.keep_lease_alive(lease) == 0
    with pytest.raises(LeaseLostError):
        client.commit(Txn([Put(key, b"", lease)]))


def test_an_endpoint_that_is_away_is_passed_over(etcd: EtcdServer, key: str) -> None:
    client = Etcd([NOWHERE, "http://127.0.0.1:1", etcd.endpoint])
    assert client.commit(Txn([Put(key, b"1")])).succeeded
    assert value_of(client, key) == b"1"


def test_without_any_endpoint_the_error_names_one_and_no_secret() -> None:
    client = Etcd(["http://user:hunter2@127.0.0.1:9"], username="u", password=SecretStr(PASSWORD))
    with pytest.raises(SourceUnavailableError, match=r"127\.0\.0\.1:9 does not answer") as raised:
        client.grant_lease(5)
    assert "hunter2" not in str(raised.value)
    assert PASSWORD not in str(raised.value)


@pytest.mark.fault("L7")
@pytest.mark.parametrize("fault", [LoseReply(), AnswerInstead(503), TimeOut(), Refuse()])
def test_a_transaction_of_unknown_outcome_is_not_sent_again(
    etcd: EtcdServer, key: str, fault: LoseReply | AnswerInstead | TimeOut | Refuse
) -> None:
    with HttpProxy(etcd.endpoint) as first, HttpProxy(etcd.endpoint) as second:
        first.script(every, fault)
        client = Etcd([first.url, second.url], timeout_seconds=1)
        with pytest.raises(SourceUnavailableError):
            client.commit(Txn([Put(key, b"1")]))
        assert second.requests == ()
        landed = isinstance(fault, LoseReply | AnswerInstead)
        assert value_of(client, key) == (b"1" if landed else None)


def test_what_changes_nothing_is_asked_of_the_next_endpoint(etcd: EtcdServer, key: str) -> None:
    with HttpProxy(etcd.endpoint) as proxy:
        proxy.script(every, LoseReply(), AnswerInstead(503))
        client = Etcd([proxy.url, etcd.endpoint], timeout_seconds=5)
        assert value_of(client, key) is None
        # Whoever answered is asked first from then on.
        assert value_of(client, key) is None
        assert len(proxy.requests) == 1


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"ID":"x","TTL":"y"}'])
@pytest.mark.parametrize("status", [200, 302, 404])
def test_something_else_than_etcd_is_not_taken_for_it(
    etcd: EtcdServer, status: int, body: bytes
) -> None:
    with HttpProxy(etcd.endpoint) as proxy:
        proxy.script(every, Answer(status, body, {"Location": etcd.endpoint}))
        with pytest.raises(SourceUnavailableError, match="answer"):
            Etcd([proxy.url]).grant_lease(5)
        assert len(proxy.requests) == 1, "a redirect is not followed"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EtcdServer, Path]]:
    """An etcd with TLS that wants a password; the CA is its own certificate."""
    folder = tmp_path_factory.mktemp("etcd-tls")
    certificate = make_certificate(folder, "etcd")
    with start_etcd(certificate=(certificate.file, certificate.key)) as server:
        endpoint = server.endpoint
        request(endpoint, "auth/user/add", name="root", password="root")
        request(endpoint, "auth/role/add", name="root")
        request(endpoint, "auth/user/grant", user="root", role="root")
        request(endpoint, "auth/user/add", name="frazil", password=PASSWORD)
        request(endpoint, "auth/role/add", name="processors")
        # processors/ to processors0: every key below the prefix.
        permission = {
            "permType": "READWRITE",
            "key": "cHJvY2Vzc29ycy8=",
            "range_end": "cHJvY2Vzc29yczA=",
        }
        request(endpoint, "auth/role/grant", name="processors", perm=permission)
        request(endpoint, "auth/user/grant", user="frazil", role="processors")
        request(endpoint, "auth/enable")
        yield server, certificate.file


def frazil_at(endpoint: str | None, ca: Path | None, password: str = PASSWORD) -> Etcd:
    assert endpoint is not None
    return Etcd([endpoint], username="frazil", password=SecretStr(password), ca=ca)


def test_a_user_may_do_what_the_role_allows_over_tls(guarded: tuple[EtcdServer, Path]) -> None:
    server, ca = guarded
    client = frazil_at(server.tls_endpoint, ca)
    lease, _ = client.grant_lease(5)
    assert client.commit(Txn([Put("processors/a", b"1", lease)])).succeeded
    assert client.keep_lease_alive(lease) > 0
    assert value_of(client, "processors/a") == b"1"
    with pytest.raises(PermissionError, match="permission denied"):
        client.commit(Txn([DeleteKey("elsewhere")]))


def test_a_token_that_became_invalid_is_replaced(guarded: tuple[EtcdServer, Path]) -> None:
    server, ca = guarded
    client = frazil_at(server.tls_endpoint, ca)
    assert value_of(client, "processors/b") is None
    token = request(server.endpoint, "auth/authenticate", name="root", password="root")["token"]
    # A change of roles makes every token old, a new password those of its user invalid.
    for path, change in (
        ("role/add", {"name": "other"}),
        ("user/changepw", {"name": "frazil", "password": PASSWORD}),
    ):
        httpx.post(
            f"{server.endpoint}/v3/auth/{path}", json=change, headers={"Authorization": token}
        ).raise_for_status()
        assert client.commit(Txn([Put("processors/b", path.encode())])).succeeded
        assert value_of(client, "processors/b") == path.encode()


def test_a_wrong_password_is_refused_without_showing_it(guarded: tuple[EtcdServer, Path]) -> None:
    server, ca = guarded
    with pytest.raises(PermissionError, match="user or the password") as raised:
        frazil_at(server.tls_endpoint, ca, password="wrong-5e").grant_lease(5)
    assert "wrong-5e" not in str(raised.value)


def test_no_password_is_refused_where_one_is_wanted(guarded: tuple[EtcdServer, Path]) -> None:
    server, _ = guarded
    with pytest.raises(PermissionError):
        Etcd([server.endpoint]).commit(Txn([Put("processors/c", b"")]))


def test_a_password_does_no_harm_where_none_is_wanted(etcd: EtcdServer, key: str) -> None:
    assert frazil_at(etcd.endpoint, None).commit(Txn([Put(key, b"")])).succeeded


@pytest.mark.fault("G14")
def test_a_server_that_no_ca_vouches_for_is_refused(
    guarded: tuple[EtcdServer, Path], tmp_path: Path
) -> None:
    server, _ = guarded
    stranger = make_certificate(tmp_path, "stranger").file
    for ca in (None, stranger):
        with pytest.raises(SourceUnavailableError, match="no TLS") as raised:
            frazil_at(server.tls_endpoint, ca).grant_lease(5)
        assert "source.etcd.ca" in str(raised.value)


@pytest.mark.fault("G14")
def test_a_certificate_of_another_host_is_refused(tmp_path: Path) -> None:
    other = make_certificate(tmp_path, "other", address="127.0.0.2")
    with (
        start_etcd(certificate=(other.file, other.key)) as server,
        pytest.raises(SourceUnavailableError, match="no TLS"),
    ):
        frazil_at(server.tls_endpoint, other.file).grant_lease(5)


def test_a_ca_that_cannot_be_read_is_a_mistake_in_the_configuration(tmp_path: Path) -> None:
    for content in (None, "no certificate"):
        file = tmp_path / "ca.pem"
        if content is not None:
            file.write_text(content)
        with pytest.raises(ConfigError, match=r"source\.etcd\.ca"):
            Etcd(["https://127.0.0.1:9"], ca=file)
