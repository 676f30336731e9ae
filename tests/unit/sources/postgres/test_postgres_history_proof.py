"""Whether a log is the one that was read before, by what it sends."""

from __future__ import annotations

import struct

import pytest

from frazil.codec.pgoutput.replication_frames import Keepalive, LogData
from frazil.errors import MalformedChangeError, SourceReplacedError
from frazil.sources.postgres.stream.history_proof import (
    HistoryProof,
    SeenTransaction,
    Witness,
    decode_witness,
    encode_witness,
)

pytestmark = pytest.mark.fault("N34")

LAST = SeenTransaction(0x100, 700, 5_000)
WITNESS = Witness(begin=0x100, end=0x200, last=LAST)
IDLE = Witness(begin=0x100, end=0x200)


def data(payload: bytes, at: int = 0) -> LogData:
    return LogData(at, at, 0, payload)


def transaction(seen: SeenTransaction, *, rows: int = 1, end: int | None = None) -> list[LogData]:
    begin = struct.pack(">cQqI", b"B", seen.final_lsn, seen.committed_at, seen.xid)
    end = seen.final_lsn + 8 if end is None else end
    commit = struct.pack(">cBQQq", b"C", 0, seen.final_lsn, end, seen.committed_at)
    return [data(begin), *[data(b"I....")] * rows, data(commit)]


def keepalive(at: int) -> Keepalive:
    return Keepalive(at, 0, wants_reply=False)


def proof(witness: Witness = WITNESS, *, confirmed: int = 0x80) -> HistoryProof:
    return HistoryProof(witness, confirmed=confirmed)


@pytest.mark.parametrize(
    "after",
    [
        [keepalive(0x200)],
        transaction(SeenTransaction(0x200, 701, 6_000)),
        transaction(SeenTransaction(0x1F0, 701, 6_000), rows=0, end=0x200),
    ],
    ids=["idle", "next", "none of ours"],
)
def test_the_same_transaction_and_none_until_the_end_is_the_same_log(
    after: list[LogData | Keepalive],
) -> None:
    found = proof()
    assert found.begin == LAST.final_lsn
    assert not found.take(transaction(LAST))
    assert not found.take([keepalive(0x1FF)])
    assert found.take(after)


@pytest.mark.parametrize(
    "other",
    [
        LAST._replace(final_lsn=0x101),
        LAST._replace(final_lsn=0xFF),
        LAST._replace(xid=701),
        LAST._replace(committed_at=5_001),
    ],
)
def test_another_transaction_at_its_position_is_another_log(other: SeenTransaction) -> None:
    with pytest.raises(SourceReplacedError, match=r"not there when it was read.*resync --all"):
        proof().take(transaction(other))


@pytest.mark.parametrize(
    "frames",
    [
        [keepalive(0x200)],
        transaction(SeenTransaction(0x200, 701, 6_000)),
        transaction(LAST, rows=0, end=0x200),
    ],
    ids=["idle", "later", "without its rows"],
)
def test_a_log_without_the_transaction_is_another_one(frames: list[LogData | Keepalive]) -> None:
    with pytest.raises(SourceReplacedError, match=r"has not the transaction at 0/100 .*resync"):
        proof().take(frames)


def test_a_second_transaction_before_the_end_is_another_log() -> None:
    found = proof()
    found.take(transaction(LAST))
    with pytest.raises(SourceReplacedError, match="0/1FF"):
        found.take(transaction(SeenTransaction(0x1FF, 701, 6_000)))


def test_a_slot_confirmed_after_it_does_not_send_it_again() -> None:
    found = proof(confirmed=0x101)
    assert found.begin == 0x101
    assert found.take([keepalive(0x200)])
    with pytest.raises(SourceReplacedError):
        proof(confirmed=0x101).take(transaction(SeenTransaction(0x180, 701, 6_000)))


def test_a_slot_confirmed_where_it_commits_sends_it() -> None:
    with pytest.raises(SourceReplacedError):
        proof(confirmed=0x100).take([keepalive(0x200)])


def test_an_idle_stretch_must_be_idle_again() -> None:
    assert proof(IDLE).take([keepalive(0x200)])
    with pytest.raises(SourceReplacedError):
        proof(IDLE).take(transaction(LAST))


def test_a_keepalive_inside_a_transaction_proves_nothing() -> None:
    begin, row, commit = transaction(LAST)
    found = proof()
    assert not found.take([begin, keepalive(0x300), row, commit])
    assert found.take([keepalive(0x200)])


def test_what_cannot_be_read_is_said_with_its_position() -> None:
    with pytest.raises(MalformedChangeError, match="0/77"):
        proof().take([data(b"B", 0x77)])


def test_a_witness_grows_with_what_is_read_and_never_shrinks() -> None:
    assert WITNESS.extended(0x200, SeenTransaction(0x80, 1, 1)) is WITNESS
    assert WITNESS.extended(0x300) == Witness(begin=0x100, end=0x300, last=LAST)
    newer = SeenTransaction(0x280, 702, 7_000)
    assert WITNESS.extended(0x300, newer) == Witness(begin=0x280, end=0x300, last=newer)


@pytest.mark.parametrize("witness", [WITNESS, IDLE])
def test_a_witness_is_read_back_from_the_ledger(witness: Witness) -> None:
    assert decode_witness(encode_witness(witness)) == witness


@pytest.mark.parametrize("text", [None, "", "{}", "[]", "1", '{"begin":"x","end":"0/1"}', "{"])
def test_a_ledger_without_one_has_none(text: str | None) -> None:
    assert decode_witness(text) is None
