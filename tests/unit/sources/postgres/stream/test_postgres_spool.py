"""The reader of a stream: what can be taken and when, what is kept, and how it ends."""

from __future__ import annotations

import errno
import os
import pickle
import stat
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from frazil.codec.pgoutput.messages import Begin, Commit
from frazil.codec.pgoutput.replication_frames import Keepalive, LogData
from frazil.errors import MalformedChangeError, SourceUnavailableError, StorageError
from frazil.sources.postgres.spool_files import SpoolFiles
from frazil.sources.postgres.stream.spool import StreamSpool, Taken
from frazil.sources.protocol import Limit
from tests.support.pgoutput.frames import encode_message
from tests.support.postgres.spooled import MOMENT, framed, insert, relation, rows_of, transaction

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from frazil.clients.postgres.replication_stream import Frame
    from frazil.codec.pgoutput.messages import Message

ALL = Limit(rows=1 << 40, bytes=1 << 40)
LITTLE = Limit(rows=1, bytes=1 << 40)
PATIENCE = 60.0
LARGE = 1 << 30
ROW_BYTES = len(encode_message(insert(value="b")))


class TwinStream:
    """A stream whose frames a test sends, and whose end it chooses."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._frames: list[Frame] = []
        self._error: Exception | None = None
        self._is_receiving = False
        self.keep_alives = 0
        self.is_closed = False

    def send(self, *messages: Message) -> None:
        self.send_frames(*framed(messages))

    def send_frames(self, *frames: Frame) -> None:
        with self._changed:
            self._frames += frames
            self._changed.notify_all()

    def end(self, error: Exception) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def receive(self, timeout: float) -> list[Frame]:
        with self._changed:
            self._is_receiving = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._frames or self._error or self.is_closed, timeout)
            if self.is_closed:
                raise SourceUnavailableError("closed")
            if self._error is not None and not self._frames:
                raise self._error
            frames, self._frames = self._frames, []
            self._is_receiving = not frames
            return frames

    def keep_alive(self) -> None:
        with self._changed:
            self.keep_alives += 1
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def wait_until_read(self) -> None:
        """Until the reader has dealt with all that was sent and requests more."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._is_receiving and not self._frames, PATIENCE)

    def wait_until_kept_alive(self, times: int) -> None:
        with self._changed:
            goal = self.keep_alives + times
            assert self._changed.wait_for(lambda: self.keep_alives >= goal, PATIENCE)


@contextmanager
def spooling(
    folder: Path, *, max_bytes: int = LARGE, segment_bytes: int = LARGE, large_bytes: int = LARGE
) -> Iterator[tuple[TwinStream, StreamSpool]]:
    stream = TwinStream()
    with StreamSpool(
        stream,
        SpoolFiles(str(folder)),
        max_bytes=max_bytes,
        segment_bytes=segment_bytes,
        large_bytes=large_bytes,
        keep_alive_seconds=0.01,
    ) as spool:
        yield stream, spool


def texts(folder: Path, taken: Taken) -> list[str]:
    """The values of all rows that were taken."""
    files = SpoolFiles(str(folder))
    return [
        str(cell)
        for segment in taken.segments
        for row in rows_of(segment, files.load(segment.name))
        for cell in row.new or ()
    ]


def test_complete_transactions_are_taken_and_the_open_one_stays(tmp_path: Path) -> None:
    with spooling(tmp_path) as (stream, spool):
        stream.send(*transaction(10, relation(), insert(value="a")), Begin(20, MOMENT, 1))
        stream.send(insert(value="b"))
        stream.wait_until_read()
        assert spool.pending_rows == 1
        taken = spool.take(ALL)
        assert texts(tmp_path, taken) == ["a"]
        assert taken.end == spool.position == 15
        assert spool.take(ALL) == Taken((), None)
        stream.send(insert(value="c"), Commit(20, 25, MOMENT))
        assert spool.wait(PATIENCE, Limit(rows=2, bytes=1 << 40))
        taken = spool.take(ALL)
        assert texts(tmp_path, taken) == ["b", "c"]
        assert taken.end == 25


@pytest.mark.fault("N55")
def test_it_knows_how_far_it_received_and_which_tables_are_not_written(tmp_path: Path) -> None:
    with spooling(tmp_path, segment_bytes=1) as (stream, spool):
        stream.send(*transaction(10, relation(), insert()))
        stream.send(*transaction(20, relation(8), insert(8)), Begin(30, MOMENT, 1), insert(7))
        stream.wait_until_read()
        assert spool.received == (25, frozenset({7, 8}))
        taken = spool.take(ALL)
        # Taken is not written yet.
        assert spool.received == (25, frozenset({7, 8}))
        spool.release(taken.segments)
        # The open transaction may be of any table that it has described.
        assert spool.received == (25, frozenset({7}))
        stream.send(Commit(30, 35, MOMENT))
        stream.send_frames(Keepalive(90, MOMENT, wants_reply=False))
        stream.wait_until_read()
        assert spool.received == (90, frozenset({7}))
        spool.release(spool.take(ALL).segments)
        assert spool.received == (90, frozenset())
        stream.end(SourceUnavailableError("away"))
        with pytest.raises(SourceUnavailableError):
            spool.wait(PATIENCE, LITTLE)
        assert spool.received is None


def test_a_wait_ends_with_the_time_when_nothing_comes(tmp_path: Path) -> None:
    with spooling(tmp_path) as (stream, spool):
        assert not spool.wait(0.01, LITTLE)
        stream.send(*transaction(10, relation(), insert()))
        assert spool.wait(PATIENCE, LITTLE)
        assert spool.wait(PATIENCE, Limit(rows=100, bytes=1))
        assert not spool.wait(0.01, Limit(rows=2, bytes=1 << 40))


def test_a_wait_ends_when_it_is_woken_and_the_next_one_waits_again(tmp_path: Path) -> None:
    woken = threading.Event()
    with StreamSpool(
        TwinStream(), SpoolFiles(str(tmp_path)), max_bytes=LARGE, woken=woken
    ) as spool:
        woken.set()
        assert not spool.wait(PATIENCE, LITTLE)
        assert not woken.is_set()
        threading.Timer(0.05, woken.set).start()
        assert not spool.wait(PATIENCE, LITTLE)
        assert not spool.wait(0.01, LITTLE)


def test_what_came_while_no_one_waited_does_not_end_the_next_wait(tmp_path: Path) -> None:
    with spooling(tmp_path) as (stream, spool):
        stream.send(*transaction(10, relation(), insert()))
        stream.wait_until_read()
        spool.take(ALL)
        assert not spool._woken.is_set()


def test_taking_stops_at_the_limit_but_takes_at_least_one_segment(tmp_path: Path) -> None:
    with spooling(tmp_path, segment_bytes=1) as (stream, spool):
        stream.send(*transaction(10, relation(), insert(), insert(), insert()))
        stream.send(*transaction(20, insert()), *transaction(30, insert()))
        stream.wait_until_read()
        assert spool.pending_rows == 5
        first = spool.take(Limit(rows=2, bytes=1 << 40))
        assert ([each.rows for each in first.segments], first.end) == ([3], 15)
        second = spool.take(Limit(rows=2, bytes=1 << 40))
        assert ([each.rows for each in second.segments], second.end) == ([1, 1], 35)
        assert spool.pending_rows == spool.pending_bytes == 0


def test_taking_stops_at_the_limit_of_bytes(tmp_path: Path) -> None:
    with spooling(tmp_path, segment_bytes=1) as (stream, spool):
        stream.send(*transaction(10, relation(), insert()), *transaction(20, insert()))
        stream.wait_until_read()
        before = spool.pending_bytes
        (only,) = spool.take(Limit(rows=100, bytes=before - 1)).segments
        assert spool.pending_bytes == before - only.size


def test_a_large_transaction_is_taken_with_its_commit_and_all_at_once(tmp_path: Path) -> None:
    sizes = {"segment_bytes": 20 * ROW_BYTES, "large_bytes": 10 * ROW_BYTES}
    with spooling(tmp_path, **sizes) as (stream, spool):
        stream.send(*transaction(10, relation(), insert(value="a")))
        stream.send(Begin(20, MOMENT, 1), *[insert(value="b")] * 200)
        stream.wait_until_read()
        assert spool.pending_rows == 1
        assert spool.used_bytes > 200 * ROW_BYTES
        taken = spool.take(ALL)
        assert texts(tmp_path, taken) == ["a"]
        assert taken.end == spool.position == 15
        stream.send(Commit(20, 25, MOMENT), *transaction(30, insert(value="c")))
        assert spool.wait(PATIENCE, Limit(rows=201, bytes=1 << 40))
        taken = spool.take(LITTLE)
        assert len(taken.segments) > 5
        assert texts(tmp_path, taken) == ["b"] * 200
        assert taken.end == 25
        assert texts(tmp_path, spool.take(ALL)) == ["c"]


def test_files_stay_until_they_are_released(tmp_path: Path) -> None:
    with spooling(tmp_path) as (stream, spool):
        stream.send(*transaction(10, relation(), insert()))
        assert spool.wait(PATIENCE, LITTLE)
        segments = spool.take(ALL).segments
        assert spool.used_bytes == segments[0].size
        assert [each.name for each in tmp_path.iterdir()] == [segments[0].name]
        spool.release(segments)
        assert spool.used_bytes == 0
        assert list(tmp_path.iterdir()) == []
        spool.release(segments)
        assert spool.used_bytes == 0


def test_an_idle_server_moves_the_position(tmp_path: Path) -> None:
    with spooling(tmp_path) as (stream, spool):
        stream.send_frames(Keepalive(100, 0, wants_reply=False))
        stream.send(*transaction(110))
        stream.wait_until_read()
        assert spool.position == 115
        stream.send_frames(Keepalive(200, 0, wants_reply=False))
        stream.wait_until_read()
        assert spool.position == 200


def test_the_position_does_not_move_while_something_is_pending(tmp_path: Path) -> None:
    with spooling(tmp_path) as (stream, spool):
        stream.send_frames(Keepalive(100, 0, wants_reply=False))
        stream.wait_until_read()
        assert spool.position == 100
        stream.send(*transaction(110, relation(), insert()))
        stream.send_frames(Keepalive(200, 0, wants_reply=False))
        stream.wait_until_read()
        assert spool.position == 100
        assert spool.take(ALL).end == 200


@pytest.mark.fault("O2", "O3")
def test_a_full_spool_pauses_the_reader_which_goes_on_answering(tmp_path: Path) -> None:
    with spooling(tmp_path, max_bytes=1) as (stream, spool):
        stream.send(*transaction(10, relation(), insert(value="a")), Begin(20, MOMENT, 1))
        stream.wait_until_kept_alive(3)
        assert spool.is_paused
        assert spool.wait(PATIENCE, ALL), "there is something to take and more will not come"
        taken = spool.take(ALL)
        stream.send(insert(value="b"), Commit(20, 25, MOMENT))
        stream.wait_until_kept_alive(3)
        assert spool.is_paused
        assert spool.pending_rows == 0
        assert not spool.wait(0.01, ALL)
        spool.release(taken.segments)
        assert spool.wait(PATIENCE, LITTLE)
        assert texts(tmp_path, spool.take(ALL)) == ["b"]


def test_a_transaction_larger_than_the_spool_is_taken_completely(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sizes = {"segment_bytes": 20 * ROW_BYTES, "large_bytes": 10 * ROW_BYTES}
    with spooling(tmp_path, max_bytes=50 * ROW_BYTES, **sizes) as (stream, spool):
        stream.send(Begin(20, MOMENT, 1), relation())
        for _ in range(100):
            stream.send(*[insert(value="b")] * 10)
            stream.wait_until_read()
        assert spool.used_bytes > 1000 * ROW_BYTES
        assert spool.is_paused is False
        stream.send(Commit(20, 25, MOMENT), Begin(30, MOMENT, 1))
        stream.wait_until_kept_alive(1)
        taken = spool.take(LITTLE)
        assert len(texts(tmp_path, taken)) == 1000
        spool.release(taken.segments)
        stream.wait_until_read()
    assert caplog.messages.count("a transaction is larger than the spool") == 1


@pytest.mark.parametrize(
    "error", [SourceUnavailableError("gone"), StorageError("broken"), RuntimeError("a defect")]
)
def test_what_the_reader_meets_is_raised_and_stays(tmp_path: Path, error: Exception) -> None:
    with spooling(tmp_path) as (stream, spool):
        stream.send(*transaction(10, relation(), insert()))
        stream.wait_until_read()
        stream.end(error)
        for _ in range(2):
            with pytest.raises(type(error)):
                spool.wait(PATIENCE, ALL)
            with pytest.raises(type(error)):
                spool.take(ALL)
        assert spool.position == 0


def test_a_message_that_may_not_come_ends_the_reader(tmp_path: Path) -> None:
    with spooling(tmp_path) as (stream, spool):
        stream.send_frames(Keepalive(100, 0, wants_reply=False))
        stream.send(insert())
        with pytest.raises(MalformedChangeError):
            spool.wait(PATIENCE, ALL)


def test_what_came_with_a_message_that_may_not_come_is_not_taken_for_read(tmp_path: Path) -> None:
    # Its segment is finished, and no one collects it any more: confirmed, it would be lost.
    with spooling(tmp_path, segment_bytes=1) as (stream, spool):
        bad = LogData(9, 9, 0, b"?")
        stream.send_frames(*framed(transaction(10, relation(), insert())), bad)
        with pytest.raises(MalformedChangeError):
            spool.wait(PATIENCE, ALL)
        assert spool.pending_rows == 0
        assert spool.position == 0


def test_the_first_failure_is_the_one_that_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spooling(tmp_path) as (stream, spool), full_disk(monkeypatch):
        stream.send(*transaction(10, relation(), insert()))
        stream.wait_until_read()
        with pytest.raises(StorageError):
            spool.take(ALL)
        stream.end(SourceUnavailableError("gone"))
        # The reader ends with it; its own error does not replace the cause.
        spool._reader.join(PATIENCE)
        assert not spool._reader.is_alive()
        with pytest.raises(StorageError):
            spool.take(ALL)


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    real = os.open

    def opened(path: object, flags: int, mode: int = 0o777) -> int:
        assert str(path).endswith(".part")
        os.close(real(str(path), flags, mode))
        return real("/dev/full", os.O_WRONLY)

    with monkeypatch.context() as patched:
        patched.setattr("frazil.sources.postgres.spool_files.os.open", opened)
        yield


@pytest.mark.fault("O2")
def test_a_full_disk_is_an_error_that_says_what_to_do_and_confirms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spooling(tmp_path, segment_bytes=1) as (stream, spool):
        stream.send_frames(Keepalive(5, 0, wants_reply=False))
        stream.wait_until_read()
        assert spool.position == 5
        with full_disk(monkeypatch):
            stream.send(*transaction(10, relation(), insert()))
            with pytest.raises(StorageError, match="no space") as caught:
                spool.wait(PATIENCE, ALL)
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == errno.ENOSPC
        assert caught.value.next_step is not None
        assert spool.position == 5
        with pytest.raises(StorageError):
            spool.take(ALL)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_when_a_segment_is_finished_ends_the_reader_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spooling(tmp_path) as (stream, spool), full_disk(monkeypatch):
        stream.send(*transaction(10, relation(), insert()))
        stream.wait_until_read()
        for _ in range(2):
            with pytest.raises(StorageError):
                spool.take(ALL)
        assert spool.position == 0


def test_closing_ends_everything_and_may_be_repeated(tmp_path: Path) -> None:
    before = threading.active_count()
    with spooling(tmp_path, segment_bytes=50 * ROW_BYTES, large_bytes=10 * ROW_BYTES) as (
        stream,
        spool,
    ):
        stream.send(*transaction(10, relation(), insert()))
        assert spool.wait(PATIENCE, LITTLE)
        spool.take(ALL)
        stream.send(*transaction(20, insert()), Begin(30, MOMENT, 1), *[insert()] * 200)
        stream.wait_until_read()
        assert len(list(tmp_path.iterdir())) > 3
        closers = [threading.Thread(target=spool.close) for _ in range(3)]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join(PATIENCE)
        assert stream.is_closed
        assert list(tmp_path.iterdir()) == []
        assert threading.active_count() == before
        with pytest.raises(SourceUnavailableError):
            spool.take(ALL)
        with pytest.raises(SourceUnavailableError):
            spool.wait(PATIENCE, ALL)


def test_a_paused_reader_ends_at_once(tmp_path: Path) -> None:
    with spooling(tmp_path, max_bytes=1) as (stream, spool):
        stream.send(*transaction(10, relation(), insert()))
        stream.wait_until_kept_alive(1)
        spool.close()
    assert list(tmp_path.iterdir()) == []


def test_what_an_earlier_reader_left_is_cleared_and_nothing_else(tmp_path: Path) -> None:
    for name in ("x-1.segment", "x-2.segment.part", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    with spooling(tmp_path):
        assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


def test_files_can_only_be_read_by_their_user(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "spool"
    files = SpoolFiles(str(folder))
    file = files.write("a.segment")
    file.write(b"content")
    assert [each.name for each in folder.iterdir()] == ["a.segment.part"]
    file.finish()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "a.segment").stat().st_mode) == 0o600
    assert pickle.loads(pickle.dumps(files)).load("a.segment") == b"content"
    files.remove(["a.segment", "never.segment"])
    with pytest.raises(StorageError):
        files.load("a.segment")


def test_a_file_that_is_abandoned_leaves_nothing(tmp_path: Path) -> None:
    file = SpoolFiles(f"file://{tmp_path}").write("a.segment")
    file.write(b"content")
    file.abandon()
    file.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError) as caught:
        SpoolFiles(str(tmp_path / "file")).write("a.segment")
    assert caught.value.next_step is not None


def test_a_relative_folder_is_the_same_one_for_tasks_that_run_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert SpoolFiles("spool").location == str(tmp_path / "spool")
    assert SpoolFiles("s3://bucket/spool/").location == "s3://bucket/spool"


def test_secrets_of_a_store_are_not_shown() -> None:
    files = SpoolFiles("s3://bucket/spool", (("s3.secret-access-key", "hush"),))
    assert "hush" not in repr(files)
