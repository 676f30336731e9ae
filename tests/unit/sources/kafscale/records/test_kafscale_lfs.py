"""Records that only point to their payload: fetched, kept, left out, and never lost."""

from __future__ import annotations

import hashlib
import json
import zlib
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from frazil.codec.kfs.records import RECORD_SCHEMA
from frazil.config.models.kafscale_source import (
    Lfs,
    LfsMode,
    TopicColumn,
    TopicColumnType,
    Validation,
)
from frazil.errors import StorageError
from frazil.model.records.rejected_record import RejectReason
from frazil.sources.kafscale.reading import lfs as lfs_module
from frazil.sources.kafscale.reading.record_rows import LFS_COLUMNS
from frazil.sources.kafscale.records.record_schema import RecordSchema
from frazil.sources.protocol import CountedOutcome, TableRows
from tests.support.kafscale.segments import Message, client_batch, segment
from tests.support.kafscale.topics import PARTITION, TopicReading, planned, read_topic, topic_plan

if TYPE_CHECKING:
    import pyarrow as pa

    from frazil.sources.kafscale.records.topic_plan import TopicPlan

BLOB = b'{"id": 5}'
KEY = "lfs/orders/1"
SHA256 = hashlib.sha256(BLOB).hexdigest()
LFS_NAMES = [name for name, _, _ in LFS_COLUMNS]


def envelope(**fields: Any) -> bytes:
    """An envelope as KafScale's proxy writes it; None leaves a field out."""
    every = {
        "kfs_lfs": 1,
        "bucket": "another",
        "key": KEY,
        "size": len(BLOB),
        "sha256": SHA256,
        "checksum": SHA256,
        "checksum_alg": "sha256",
        "content_type": "application/json",
        "created_at": "2026-01-01T00:00:00Z",
    } | fields
    return json.dumps({name: each for name, each in every.items() if each is not None}).encode()


def read(
    mode: str,
    *values: bytes | None,
    blobs: dict[str, bytes] | None = None,
    fails: tuple[str, ...] = (),
    columns: tuple[TopicColumn, ...] = (),
    plan: dict[str, Any] | None = None,
    **settings: Any,
) -> TopicReading:
    chosen = topic_plan(*columns, lfs=Lfs(mode=LfsMode(mode), **settings), **(plan or {}))
    data = segment([client_batch(0, list(map(Message, values)))])
    stored = {KEY: BLOB} if blobs is None else blobs
    return read_topic(chosen, [(planned(0, len(values)), data)], stored.items(), fails=fails)


def test_off_keeps_the_envelope() -> None:
    found = read("off", envelope(), blobs={})
    assert found.values == [envelope()]
    assert found.counts == {}


@pytest.mark.fault("U23")
def test_resolve_puts_the_payload_in_its_place() -> None:
    id_ = TopicColumn(name="id", type=TopicColumnType.LONG)
    found = read("resolve", b"plain", envelope(), None, b'{"id": 7}', columns=(id_,))
    assert found.values == [b"plain", BLOB, None, b'{"id": 7}']
    assert [row["id"] for row in found.rows] == [None, 5, None, 7]
    assert found.rejected == []
    assert found.counts[CountedOutcome.RESOLVED] == 1
    assert found.counts[CountedOutcome.RESOLVED_BYTES] == len(BLOB)


def test_how_long_payloads_took_is_counted_once_for_each_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = count(0, 3_000_000)
    monkeypatch.setattr(lfs_module, "monotonic_ns", lambda: next(ticks))
    found = read("resolve", envelope(), b"plain", envelope())
    # Three milliseconds for each of two payloads.
    assert found.counts[CountedOutcome.RESOLVED] == 2
    assert found.counts[CountedOutcome.RESOLVED_MICROSECONDS] == 6_000
    assert CountedOutcome.RESOLVED_MICROSECONDS not in read("resolve", b"plain").counts


def test_reference_keeps_the_envelope_and_its_fields() -> None:
    found = read("reference", envelope(), b"plain", blobs={}, store_metadata=True)
    assert found.values == [envelope(), b"plain"]
    assert [tuple(row[name] for name in LFS_NAMES) for row in found.rows] == [
        ("application/json", len(BLOB), SHA256, "sha256", "another", KEY),
        (None,) * 6,
    ]


def test_fields_of_envelopes_stay_with_their_payloads() -> None:
    found = read("resolve", b"plain", envelope(), store_metadata=True)
    assert [(row["value"], row["lfs_key"]) for row in found.rows] == [(b"plain", None), (BLOB, KEY)]
    nothing = read("resolve", b"plain", store_metadata=True)
    assert [row["lfs_key"] for row in nothing.rows] == [None]


def test_skip_leaves_them_out_and_counts_them() -> None:
    found = read("skip", envelope(), b"plain", envelope(), blobs={})
    assert found.values == [b"plain"]
    assert found.counts == {CountedOutcome.SKIPPED: 2}
    assert found.rejected == []


@pytest.mark.fault("U23")
def test_hybrid_decides_by_size() -> None:
    large, unknown = envelope(size=len(BLOB) + 1), envelope(size=None)
    zero = envelope(size=0)
    found = read("hybrid", envelope(), large, unknown, zero, max_inline_size=len(BLOB))
    assert found.values == [BLOB, large, unknown, zero]
    assert found.counts[CountedOutcome.RESOLVED] == 1


@pytest.mark.parametrize(
    "value",
    [
        b'{"kfs_lfs":1}',
        b'["kfs_lfs", 1, 2, 3]',
        b'{"a": "%s", "kfs_lfs": 1}' % (b"x" * 50),
        b' {"kfs_lfs": 1, "key": "a"}',
        b'{"kfs_lfs_": 1, "key": "a"}',
    ],
)
def test_what_does_not_look_like_an_envelope_is_a_value(value: bytes) -> None:
    for mode in ("resolve", "skip", "reference"):
        assert read(mode, value).values == [value]


@pytest.mark.parametrize(
    "fields",
    [
        {"checksum_alg": "md5", "checksum": hashlib.md5(BLOB).hexdigest()},  # noqa: S324
        {"checksum_alg": "crc32", "checksum": f"{zlib.crc32(BLOB):08x}"},
        {"checksum_alg": "SHA256", "checksum": SHA256.upper()},
        {"checksum_alg": "none", "checksum": "anything", "sha256": "anything"},
        {"checksum_alg": "md5", "checksum": None},
        {"checksum_alg": None, "checksum": None},
        {"checksum_alg": None, "checksum": None, "sha256": None},
        {"size": None},
    ],
)
def test_payloads_are_compared_with_what_their_envelopes_say(fields: dict[str, Any]) -> None:
    assert read("resolve", envelope(**fields)).values == [BLOB]


WRONG_PAYLOADS: list[dict[str, Any]] = [
    {"size": len(BLOB) + 1},
    {"size": 0},
    {"checksum": "00"},
    {"checksum": None, "sha256": "00"},
    {"checksum_alg": "md5"},
    {"checksum_alg": "crc32", "checksum": "0"},
    {"checksum_alg": "sha1", "checksum": "00"},
]


@pytest.mark.parametrize("fields", WRONG_PAYLOADS)
def test_another_payload_makes_a_dead_letter_of_the_record(fields: dict[str, Any]) -> None:
    wrong = envelope(**fields)
    found = read("resolve", envelope(), wrong, b"plain")
    assert found.values == [BLOB, b"plain"]
    (letter,) = found.rejected
    assert (letter.reason, letter.offset, letter.payload) == (RejectReason.BLOB, 1, wrong)
    assert (letter.table, letter.where) == ("orders", "orders/3")
    assert found.counts[CountedOutcome.RESOLVED] == 1


@pytest.mark.parametrize("fields", WRONG_PAYLOADS)
def test_payloads_need_not_be_compared(fields: dict[str, Any]) -> None:
    assert read("resolve", envelope(**fields), validate_checksum=False).values == [BLOB]


@pytest.mark.parametrize(
    "value",
    [
        envelope(key="lfs/not-there"),
        envelope(key=None),
        envelope(key=3),
        envelope(key=""),
        envelope(key="/" + KEY),
        envelope(key="lfs//orders/1"),
        envelope(key="lfs/../lfs/orders/1"),
        envelope(key="lfs/\n"),
        envelope(key="x" * 2000),
        envelope(size=-1),
        envelope(size=2**70),
        envelope(size=(64 << 20) + 1),
        envelope()[:-1],
        envelope(kfs_lfs="one"),
        b'{"kfs_lfs": 1, "key": "\xff"}',
        b'{"kfs_lfs": 1, "key": "\\ud800"}',
    ],
)
@pytest.mark.fault("U23")
def test_what_cannot_be_fetched_is_a_dead_letter(value: bytes) -> None:
    found = read("resolve", value, envelope())
    assert found.values == [BLOB]
    assert [(each.reason, each.payload) for each in found.rejected] == [(RejectReason.BLOB, value)]


def test_a_payload_that_is_larger_than_it_says_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lfs_module, "MOST_BLOB_BYTES", 100)
    found = read("resolve", envelope(), blobs={KEY: b"x" * 101}, validate_checksum=False)
    assert found.rows == []
    assert [each.reason for each in found.rejected] == [RejectReason.BLOB]


@pytest.mark.parametrize("mode", ["skip", "hybrid"])
def test_an_envelope_that_cannot_be_read_is_not_left_out(mode: str) -> None:
    found = read(mode, envelope()[:-1], max_inline_size=1)
    assert found.rows == []
    assert [each.reason for each in found.rejected] == [RejectReason.BLOB]
    assert found.counts == {}


def test_an_envelope_that_cannot_be_read_stays_as_a_reference() -> None:
    found = read("reference", envelope()[:-1], envelope(size=2**70), store_metadata=True)
    assert found.values == [envelope()[:-1], envelope(size=2**70)]
    assert [row["lfs_key"] for row in found.rows] == [None, None]


def test_a_store_that_does_not_answer_says_nothing_about_a_record() -> None:
    with pytest.raises(StorageError):
        read("resolve", envelope(), fails=(KEY,))


@pytest.mark.parametrize("concurrency", [0, 1, 7])
def test_many_payloads_come_in_parts_and_stay_in_order(
    concurrency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lfs_module, "_PART_BYTES", 1000)
    blobs = {f"blob/{at}": b"%d" % at * 100 for at in range(40) if at % 10 != 3}
    values = [envelope(key=f"blob/{at}", size=None, checksum_alg="none") for at in range(40)]
    between = [each for value in values for each in (value, b"plain")]
    found = read(
        "resolve", *between, blobs=blobs, resolve_concurrency=concurrency, store_metadata=True
    )
    expected = [
        each for at in range(40) for each in ((blobs.get(f"blob/{at}"), at), (b"plain", None))
    ]
    assert [(row["value"], row["lfs_key"]) for row in found.rows] == [
        (value, None if at is None else f"blob/{at}") for value, at in expected if value
    ]
    assert [each.offset for each in found.rejected] == [6, 26, 46, 66]
    assert [each.payload for each in found.rejected] == [values[at] for at in (3, 13, 23, 33)]
    assert found.counts[CountedOutcome.RESOLVED] == 36
    assert found.counts[CountedOutcome.RESOLVED_BYTES] == sum(map(len, blobs.values()))
    assert len(found.readings) > 10


def test_the_payload_is_validated_and_the_envelope_is_the_dead_letter() -> None:
    schema = RecordSchema("orders", b'{"required": ["name"]}')
    plan = {"validation": Validation.LENIENT, "schema": schema}
    found = read("resolve", envelope(), plan=plan)
    assert found.rows == []
    (letter,) = found.rejected
    assert (letter.reason, letter.payload) == (RejectReason.INVALID, envelope())


def test_changes_are_read_from_payloads_that_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[pa.RecordBatch, int]] = []

    class Events:
        def __init__(self, plan: TopicPlan) -> None:
            assert plan.is_changes

        def read(self, records: pa.RecordBatch, partition: int) -> SimpleNamespace:
            given.append((records, partition))
            counts = {CountedOutcome.NULLED: 3}
            rejected = read("resolve", envelope(size=0)).rejected
            return SimpleNamespace(rows=records, rejected=tuple(rejected), counts=counts)

    monkeypatch.setattr("frazil.sources.kafscale.reading.conversion.ChangeEvents", Events)
    schema = RecordSchema("orders", b'{"required": ["id"]}')
    plan = {"validation": Validation.LENIENT, "schema": schema, "is_changes": True}
    found = read("resolve", b"{}", envelope(), plan=plan, store_metadata=True)
    ((records, partition),) = given
    assert partition == PARTITION
    assert records.schema == RECORD_SCHEMA
    assert records.column("value").to_pylist() == [BLOB]
    assert [each.reason for each in found.rejected] == [RejectReason.INVALID, RejectReason.BLOB]
    assert found.counts[CountedOutcome.NULLED] == 3
    assert [each.rows for each in found.readings if isinstance(each, TableRows)] == [records]
