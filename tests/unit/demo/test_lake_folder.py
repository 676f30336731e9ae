"""The folder of a demo: made, locked, emptied and left, and never one that is not ours."""

from __future__ import annotations

import stat
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import pytest

from frazil.demo.services import EtcdServer, ObjectStore
from frazil.demo.tour.lake_folder import lake_folder
from frazil.demo.tour.topics import TOPICS
from frazil.errors import ServiceError

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.demo.services.process import Service

DSN = "postgresql://postgres:s3cr3t-p4ssw0rd@127.0.0.1:15432/postgres"


def test_a_folder_that_stays_has_its_lake_and_nothing_of_the_source(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lake"
    with lake_folder(path) as folder:
        folder.write_document(DSN)
        (path / "spool").mkdir()
        (path / "catalog.db").write_text("tables")
        folder.stays = True
    left = {each.name for each in path.iterdir()}
    assert left == {".frazil-demo", "catalog.db", "frazil.yaml"}
    assert "s3cr3t" not in (path / "frazil.yaml").read_text()


def test_a_folder_that_does_not_stay_goes_whatever_happened(tmp_path: Path) -> None:
    path = tmp_path / "lake"
    with suppress(KeyboardInterrupt), lake_folder(path) as folder:
        folder.write_document(DSN)
        raise KeyboardInterrupt
    assert not path.exists()


def test_an_interrupt_after_the_proof_takes_nothing_away(tmp_path: Path) -> None:
    path = tmp_path / "lake"
    with suppress(KeyboardInterrupt), lake_folder(path) as folder:
        (path / "catalog.db").write_text("tables")
        folder.stays = True
        raise KeyboardInterrupt
    assert (path / "catalog.db").exists()


def test_what_an_earlier_demo_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "lake"
    with lake_folder(path) as folder:
        (path / "lake").mkdir()
        (path / "lake" / "old.parquet").write_text("old")
        folder.stays = True
    with lake_folder(path):
        assert {each.name for each in path.iterdir()} == {".frazil-demo"}


def test_a_folder_that_no_demo_has_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(ServiceError, match="--folder"), lake_folder(tmp_path):
        pass
    assert (tmp_path / "mine.txt").read_text() == "precious"


def test_an_empty_folder_may_be_used(tmp_path: Path) -> None:
    with lake_folder(tmp_path) as folder:
        assert folder.path == tmp_path


def test_two_demos_do_not_share_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "lake"
    with lake_folder(path) as folder:
        folder.stays = True
        with pytest.raises(ServiceError, match="another demo runs"), lake_folder(path):
            pass
        assert path.exists()


@pytest.mark.parametrize("name", ["plain", "with a space", "it's $HOME", "ünïcode"])
def test_the_document_is_one_that_a_user_could_have_written(tmp_path: Path, name: str) -> None:
    with lake_folder(tmp_path / name) as folder:
        config = folder.write_document(DSN).config
        assert stat.S_IMODE(folder.dsn_file.stat().st_mode) == 0o600
    assert config.catalog.warehouse == f"file://{tmp_path / name}/lake"
    assert config.source is not None
    assert config.source.kind == "postgres"
    assert config.source.dsn.get_secret_value() == DSN
    assert config.telemetry.is_local


def test_the_document_of_topics_has_its_keys_in_files_that_do_not_stay(tmp_path: Path) -> None:
    process = cast("Service", None)
    log = tmp_path / "log"
    store = ObjectStore(
        endpoint="http://127.0.0.1:18333",
        bucket="segments",
        region="us-east-1",
        iceberg_uri="",
        table_bucket="",
        access_key="4cc3ss",
        secret_key="s3cr3t",
        log=log,
        service=process,
    )
    server = EtcdServer(host="127.0.0.1", port=12379, log=log, service=process)
    path = tmp_path / "lake"
    with lake_folder(path) as folder:
        config = folder.write_topics_document(store, server).config
        folder.stays = True
    assert config.source is not None
    assert config.source.kind == "kafscale"
    assert config.source.etcd.endpoints == ("http://127.0.0.1:12379",)
    assert [each.topic for each in config.source.topics] == list(TOPICS)
    assert config.storage.s3.secret_access_key is not None
    assert config.storage.s3.secret_access_key.get_secret_value() == "s3cr3t"
    assert {each.name for each in path.iterdir()} == {".frazil-demo", "frazil.yaml"}
    assert not {"s3cr3t", "4cc3ss"} & set((path / "frazil.yaml").read_text().split())
