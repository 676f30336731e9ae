"""A record as the payload of a dead letter."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.model.records.record_payload import (
    PayloadFormError,
    RecordPayload,
    decode_record_payload,
)

SOME_BYTES = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=9).map(str.encode))


@given(
    timestamp=st.integers(-(2**63), 2**63 - 1),
    key=SOME_BYTES,
    value=SOME_BYTES,
    headers=st.lists(st.tuples(st.binary(max_size=5), SOME_BYTES), max_size=3),
)
def test_nothing_of_a_record_is_lost(
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[bytes, bytes | None]],
) -> None:
    record = RecordPayload(timestamp_ms=timestamp, key=key, value=value, headers=tuple(headers))
    assert decode_record_payload(record.encode()) == record


def test_people_read_text_as_text() -> None:
    record = RecordPayload(
        timestamp_ms=5, key="zoë".encode(), value=b"\xff", headers=((b"h", b""),)
    )
    assert json.loads(record.encode()) == {
        "timestamp_ms": 5,
        "key": "zoë",
        "value": {"base64": "/w=="},
        "headers": [{"key": "h", "value": ""}],
    }
    assert "zoë" not in repr(record)


WHOLE = json.loads(RecordPayload(timestamp_ms=5).encode())


@pytest.mark.parametrize(
    "document",
    [
        1,
        [],
        {},
        {**WHOLE, "more": 1},
        {**WHOLE, "timestamp_ms": "5"},
        {**WHOLE, "timestamp_ms": True},
        {**WHOLE, "key": 1},
        {**WHOLE, "value": {"base64": "?"}},
        {**WHOLE, "value": {"base64": "", "more": ""}},
        {**WHOLE, "headers": None},
        {**WHOLE, "headers": [{"key": None, "value": None}]},
        {**WHOLE, "headers": [{"key": "h"}]},
    ],
)
def test_what_is_no_such_record_is_refused(document: object) -> None:
    with pytest.raises(PayloadFormError):
        decode_record_payload(json.dumps(document).encode())


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff"])
def test_what_is_no_json_is_refused(payload: bytes) -> None:
    with pytest.raises(PayloadFormError):
        decode_record_payload(payload)
