"""Nothing is run, read or put down in a folder that another user made."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from typing import TYPE_CHECKING

import pytest

from frazil.clients.private_folder import ForeignFolderError, private_folder
from frazil.clients.spark.jars import Jar, ensure_jars
from frazil.clients.spark.java import _wrapped_home
from frazil.errors import RuntimeMissingError, StorageError
from frazil.mirror.index.run_cache import RunCache
from frazil.model.policy import LogFormat
from frazil.sources.postgres.spool_files import SpoolFiles
from frazil.telemetry.logs import LogSettings, configure_logs
from frazil.telemetry.redaction import Redactor
from tests.unit.mirror.cached_entries import SPACE, entries_like, key_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.fault("N50")

OTHER_USER = 12345


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that another user made under the name that we would take."""
    folder = tmp_path / "shared" / "taken"
    folder.mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(folder, OTHER_USER, OTHER_USER)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: OTHER_USER)
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_made_is_private_with_everything_above_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert private_folder(tmp_path / "a" / "b") == (tmp_path / "a" / "b").resolve()
    finally:
        os.umask(before)
    assert (mode(tmp_path / "a"), mode(tmp_path / "a" / "b")) == (0o700, 0o700)
    assert private_folder(tmp_path / "a" / "b").is_dir()


def test_a_folder_of_another_user_is_refused_and_so_is_one_within_it(foreign: Path) -> None:
    for folder in (foreign, foreign / "below"):
        with pytest.raises(ForeignFolderError, match="belongs to user"):
            private_folder(folder)


def test_a_link_to_a_folder_of_another_user_is_refused(foreign: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(foreign)
    with pytest.raises(ForeignFolderError):
        private_folder(link)


def test_where_all_may_write_a_folder_of_our_own_is_taken(tmp_path: Path) -> None:
    shared = tmp_path / "volume"
    shared.mkdir()
    for bits in (0o777, 0o1777):
        shared.chmod(bits)
        ours = private_folder(shared)
        assert ours == shared.resolve() / f"frazil-{os.geteuid()}"
        assert mode(ours) == 0o700
        assert mode(shared) == bits


def test_where_our_group_may_write_it_may_no_longer(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o775)
    assert private_folder(tmp_path / "cache") == (tmp_path / "cache").resolve()
    assert mode(tmp_path / "cache") == 0o755


CONTENT = b"a jar"
PINNED = Jar("org.example", "pinned", "1.0", hashlib.sha256(CONTENT).hexdigest())


def test_jars_in_a_folder_of_another_user_are_not_used(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAZIL_CACHE", str(foreign))
    with pytest.raises(RuntimeMissingError, match="FRAZIL_CACHE to a folder of your own"):
        ensure_jars((PINNED,))
    with pytest.raises(RuntimeMissingError, match="belongs to user"):
        _wrapped_home(foreign / "jdk", 21)


def test_a_cached_index_of_another_user_is_not_read_and_nothing_is_put_there(foreign: Path) -> None:
    stream = io.StringIO()
    undo = configure_logs(LogSettings(format=LogFormat.JSON), Redactor(), stream)
    try:
        cache = RunCache(foreign, SPACE)
        wanted = entries_like(1)
        for _ in range(3):
            assert cache.load(key_of(1), lambda: wanted) is wanted
    finally:
        undo()
    assert list(foreign.iterdir()) == []
    assert stream.getvalue().count("index cache is not used") == 1


def test_rows_are_not_spooled_where_another_user_could_read_or_change_them(
    foreign: Path, tmp_path: Path
) -> None:
    with pytest.raises(StorageError, match="not private"):
        SpoolFiles(str(foreign)).write("1.segment")
    shared = tmp_path / "for-all"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(StorageError, match=r"source\.spool\.dir at a folder"):
        SpoolFiles(str(shared)).write("1.segment")
