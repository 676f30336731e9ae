from __future__ import annotations

import json
import pickle
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.codec.malformed import MalformedFileError, quoted
from frazil.codec.puffin import (
    LARGEST_FOOTER,
    Blob,
    BlobCompression,
    Footer,
    PuffinAssembly,
    TailTooShortError,
    compress,
    decompress,
    read_blob,
    read_footer,
    write_puffin,
)
from tests.support.sampling import examples

LONG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
BLOBS = st.builds(
    Blob,
    type=TEXT,
    data=st.binary(max_size=300),
    fields=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4).map(tuple),
    snapshot_id=LONG,
    sequence_number=LONG,
    codec=st.sampled_from(BlobCompression),
    properties=st.dictionaries(TEXT, TEXT, max_size=3),
)
SAMPLE = write_puffin(
    [
        Blob("frazil-a", b"a plain one", (1, 2), 7, 8, properties={"key": "value"}),
        Blob("frazil-b", b"zst" * 99, codec=BlobCompression.ZSTD),
        Blob("frazil-c", b"lz4" * 99, codec=BlobCompression.LZ4),
    ],
    {"created-by": "frazil"},
)


def read_all(data: bytes) -> tuple[Footer, list[bytes]]:
    footer = read_footer(data, file_size=len(data))
    return footer, [bytes(read_blob(each, data[each.offset : each.end])) for each in footer.blobs]


def file_with(payload: bytes, *, flags: bytes = bytes(4), size: int | None = None) -> bytes:
    """Eight bytes of blobs and this footer."""
    length = struct.pack("<i", len(payload) if size is None else size)
    return b"".join((b"PFA1", b"12345678", b"PFA1", payload, length, flags, b"PFA1"))


def footer_with(*blobs: dict[str, Any], **members: Any) -> bytes:
    return json.dumps({"blobs": list(blobs), **members}).encode()


def blob_with(**members: Any) -> dict[str, Any]:
    facts = {"type": "t", "fields": [], "snapshot-id": 1, "sequence-number": 1}
    return {**facts, "offset": 4, "length": 8, **members}


@given(st.lists(BLOBS, max_size=4), st.dictionaries(TEXT, TEXT, max_size=3))
def test_what_is_written_is_read_back(blobs: list[Blob], properties: dict[str, str]) -> None:
    file = write_puffin(blobs, properties)
    footer, contents = read_all(file.data)
    assert contents == [bytes(blob.data) for blob in blobs]
    assert footer == Footer(file.blobs, properties, file.footer_size)
    for blob, read in zip(blobs, footer.blobs, strict=True):
        assert (read.type, read.fields, read.properties) == (
            blob.type,
            blob.fields,
            blob.properties,
        )
        assert (read.snapshot_id, read.sequence_number) == (blob.snapshot_id, blob.sequence_number)
        assert read.codec is blob.codec


def test_a_file_is_assembled_piece_by_piece_without_copying_what_is_stored_plain() -> None:
    large = memoryview(bytes(1000)).cast("Q")
    assembly = PuffinAssembly()
    assert (assembly.size, assembly.footer_size, assembly.blobs) == (0, 0, ())
    chunks = [*assembly.add(Blob("one", large)), *assembly.add(Blob("two", b"2"))]
    assert chunks[1] is large
    assert [(blob.offset, blob.length) for blob in assembly.blobs] == [(4, 1000), (1004, 1)]
    chunks.append(assembly.finish({}))
    data = b"".join(chunks)
    assert assembly.size == len(data)
    assert assembly.footer_size == len(chunks[-1])
    assert data == write_puffin([Blob("one", large), Blob("two", b"2")], {}).data
    for late in (lambda: assembly.add(Blob("three", b"")), lambda: assembly.finish({})):
        with pytest.raises(ValueError, match="finished"):
            late()


def test_a_file_without_blobs_is_a_file() -> None:
    file = write_puffin([], {})
    assert file.data == b'PFA1PFA1{"blobs":[]}\x0c\0\0\0\0\0\0\0PFA1'
    assert read_all(file.data) == (Footer((), {}, file.footer_size), [])


@pytest.mark.parametrize("given_bytes", [0, 3, 11])
def test_a_tail_without_the_trailer_requests_it(given_bytes: int) -> None:
    tail = SAMPLE.data[len(SAMPLE.data) - given_bytes :]
    with pytest.raises(TailTooShortError, match="last 12 bytes") as refused:
        read_footer(tail, file_size=len(SAMPLE.data))
    assert refused.value.needed == 12


def test_a_tail_shorter_than_the_footer_requests_all_of_it() -> None:
    size = len(SAMPLE.data)
    for given_bytes in (12, SAMPLE.footer_size - 1):
        with pytest.raises(TailTooShortError) as refused:
            read_footer(SAMPLE.data[-given_bytes:], file_size=size)
        assert refused.value.needed == SAMPLE.footer_size
    exact = read_footer(SAMPLE.data[-SAMPLE.footer_size :], file_size=size)
    assert exact.blobs == SAMPLE.blobs


def test_a_file_cut_at_any_byte_is_refused() -> None:
    for length in range(len(SAMPLE.data)):
        with pytest.raises(MalformedFileError):
            read_all(SAMPLE.data[:length])
        with pytest.raises(MalformedFileError):
            read_all(SAMPLE.data[len(SAMPLE.data) - length :])


def test_a_flipped_bit_is_refused_or_changes_what_no_checksum_covers() -> None:
    for bit in range(8 * len(SAMPLE.data)):
        data = bytearray(SAMPLE.data)
        data[bit // 8] ^= 1 << bit % 8
        try:
            read_all(bytes(data))
        except MalformedFileError as refused:
            assert 0 <= refused.offset <= len(data)  # noqa: PT017 - most bits, not all
            assert str(refused).startswith(f"at byte {refused.offset}: expected")  # noqa: PT017


@given(st.binary(max_size=60))
@examples(300)
def test_no_footer_breaks_the_reader(payload: bytes) -> None:
    for flags in (bytes(4), b"\1\0\0\0"):
        with pytest.raises(MalformedFileError):
            read_all(file_with(payload, flags=flags))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
MEMBERS = ["type", "fields", "snapshot-id", "sequence-number", "offset", "length"]


@given(st.sampled_from([*MEMBERS, "compression-codec", "properties"]), JSON)
def test_no_member_of_a_blob_breaks_the_reader(member: str, value: object) -> None:
    try:
        footer, _ = read_all(file_with(footer_with(blob_with(**{member: value}))))
    except MalformedFileError:
        return
    blob = footer.blobs[0]
    assert isinstance(blob.type, str)
    assert 4 <= blob.offset <= blob.end <= 12


@pytest.mark.parametrize("member", MEMBERS)
def test_a_blob_without_a_member_is_refused_by_its_name(member: str) -> None:
    blob = blob_with()
    del blob[member]
    with pytest.raises(MalformedFileError, match=f"`{member}` of blob 1"):
        read_all(file_with(footer_with(blob_with(length=0), blob)))


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"type": 5}, "`type` of blob 0 to be text"),
        ({"type": "\ud800"}, "to be text"),
        ({"fields": {}}, "`fields` of blob 0 to be a list"),
        ({"fields": [2**31]}, "a number from -2147483648 to 2147483647"),
        ({"fields": ["1"]}, "a number"),
        ({"snapshot-id": True}, "a number"),
        ({"snapshot-id": 1.0}, "a number"),
        ({"sequence-number": 2**63}, "a number"),
        ({"offset": -1}, "a number from 0"),
        ({"length": -1}, "a number from 0"),
        ({"offset": 3}, "a blob between bytes 4 and 12, found 8 bytes at 3"),
        ({"length": 9}, "found 9 bytes at 4"),
        ({"offset": 2**62, "length": 2**62}, "a blob between"),
        ({"compression-codec": "brotli"}, "lz4 or zstd, not 'brotli'"),
        ({"compression-codec": "none"}, "not 'none'"),
        ({"compression-codec": None}, "to be text"),
        ({"properties": []}, "`properties` of blob 0 to be an object"),
        ({"properties": {"k": 1}}, "to be text"),
    ],
)
def test_a_wrong_member_is_refused_by_its_name(members: dict[str, Any], expected: str) -> None:
    with pytest.raises(MalformedFileError) as refused:
        read_all(file_with(footer_with(blob_with(**members))))
    assert expected in refused.value.what


def test_blobs_that_share_bytes_are_refused_whatever_their_order() -> None:
    one, two, none = blob_with(length=4), blob_with(offset=7, length=1), blob_with(length=0)
    with pytest.raises(MalformedFileError, match="between bytes 8 and 12, found 1 bytes at 7"):
        read_all(file_with(footer_with(two, one)))
    footer, _ = read_all(file_with(footer_with(blob_with(offset=8, length=4), one, none)))
    assert [blob.offset for blob in footer.blobs] == [8, 4, 4]


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"[]", "the footer to be an object"),
        (b"{}", "`blobs` of the footer to be a list"),
        (b'{"blobs":[1]}', "blob 0 to be an object"),
        (b'{"blobs":[],"blobs":[]}', "a JSON document"),
        (b'{"blobs":[NaN]}', "a JSON document"),
        (b'{"blobs":[' + b"9" * 5000 + b"]}", "a JSON document"),
        (b"\xff", "a JSON document"),
        (b"[" * 100_000, "a JSON document"),
        (b'{"blobs":[],"properties":[]}', "`properties` of the footer"),
        (b'{"blobs":[],"properties":{"k":null}}', "to be text"),
    ],
)
def test_a_footer_of_another_shape_is_refused(payload: bytes, expected: str) -> None:
    with pytest.raises(MalformedFileError, match=expected) as refused:
        read_all(file_with(payload))
    assert refused.value.offset == 16


def test_what_the_format_does_not_know_yet_is_passed_over() -> None:
    footer, _ = read_all(file_with(footer_with(blob_with(later={}), later=[1])))
    assert len(footer.blobs) == 1


@pytest.mark.parametrize("flags", [b"\2\0\0\0", b"\3\0\0\0", b"\0\1\0\0", b"\0\0\0\x80"])
def test_unknown_flags_are_refused_by_name(flags: bytes) -> None:
    bits = int.from_bytes(flags, "little")
    with pytest.raises(MalformedFileError, match=f"found 0x{bits:08x}"):
        read_all(file_with(b'{"blobs":[]}', flags=flags))


@pytest.mark.parametrize("size", [-1, -(2**31), 21, 2**31 - 1])
def test_a_footer_that_does_not_fit_in_the_file_is_refused(size: int) -> None:
    with pytest.raises(MalformedFileError, match="expected a footer of at most 20 bytes"):
        read_all(file_with(b'{"blobs":[]}', size=size))


@pytest.mark.fault("P4")
def test_a_footer_too_large_to_be_meant_is_refused_before_it_is_read() -> None:
    trailer = struct.pack("<i", LARGEST_FOOTER + 1) + bytes(4) + b"PFA1"
    with pytest.raises(MalformedFileError, match=f"at most {LARGEST_FOOTER} bytes"):
        read_footer(trailer, file_size=10**12)


@pytest.mark.parametrize("at", ["head", "footer", "end"])
def test_a_wrong_magic_is_refused_with_its_offset(at: str) -> None:
    data = bytearray(SAMPLE.data)
    footer_starts = len(data) - SAMPLE.footer_size
    offset = {"head": 0, "footer": footer_starts, "end": len(data) - 4}[at]
    data[offset] = 0
    with pytest.raises(MalformedFileError, match="magic PFA1") as refused:
        read_all(bytes(data))
    assert refused.value.offset == offset


def test_a_compressed_footer_is_opened() -> None:
    payload = pa.compress(footer_with(blob_with()), codec="lz4", asbytes=True)
    footer, contents = read_all(file_with(payload, flags=b"\1\0\0\0"))
    assert contents == [b"12345678"]
    assert footer.size == len(payload) + 16


def test_a_footer_that_opens_to_too_much_is_refused() -> None:
    bomb = pa.compress(bytes(LARGEST_FOOTER + 1), codec="lz4", asbytes=True)
    assert len(bomb) < LARGEST_FOOTER / 200
    with pytest.raises(MalformedFileError, match="found more"):
        read_all(file_with(bomb, flags=b"\1\0\0\0"))


@pytest.mark.fault("P5")
@pytest.mark.parametrize("codec", [BlobCompression.LZ4, BlobCompression.ZSTD])
def test_a_blob_that_opens_to_too_much_is_refused_before_it_is_in_memory(
    codec: BlobCompression,
) -> None:
    bomb = bytes(compress(bytes(64 << 20), codec))
    assert len(bomb) < 300_000
    before = pa.total_allocated_bytes()
    with pytest.raises(MalformedFileError, match="at most 1000000 bytes"):
        decompress(bomb, codec, at_most=1_000_000, offset=0)
    assert pa.total_allocated_bytes() - before < 8 << 20


@pytest.mark.parametrize("codec", [BlobCompression.LZ4, BlobCompression.ZSTD])
def test_compressed_bytes_are_opened_completely_or_refused(codec: BlobCompression) -> None:
    content = b"what a blob holds " * 20
    frame = bytes(compress(content, codec))
    assert decompress(frame, codec, at_most=len(content), offset=0) == content
    for length in range(len(frame)):
        with pytest.raises(MalformedFileError) as refused:
            decompress(frame[:length], codec, at_most=1000, offset=77)
        assert refused.value.offset == 77
    with pytest.raises(MalformedFileError):
        decompress(frame + b"more", codec, at_most=1000, offset=0)


def test_a_range_of_another_length_is_refused() -> None:
    blob = SAMPLE.blobs[0]
    with pytest.raises(MalformedFileError, match="a blob of 11 bytes, found 10"):
        read_blob(blob, SAMPLE.data[blob.offset : blob.end - 1])


def test_a_refusal_crosses_to_the_driver_with_its_position() -> None:
    again = pickle.loads(pickle.dumps(MalformedFileError("expected more", offset=5)))
    assert (again.what, again.offset, str(again)) == (
        "expected more",
        5,
        "at byte 5: expected more",
    )


def test_a_foreign_name_is_shown_escaped_and_short() -> None:
    assert quoted("zstd") == "'zstd'"
    assert quoted("\x1b[2J") == r"'\x1b[2J'"
    assert len(quoted("x" * 10_000)) < 50
