"""Iceberg's partition transforms over Arrow arrays, without a loop over rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.errors import UnrepresentableValueError
from frazil.model.schema.partitioning import TransformKind
from frazil.model.schema.types import Decimal, Fixed, Primitive

if TYPE_CHECKING:
    import numpy.typing as npt

    from frazil.model.schema.partitioning import Transform
    from frazil.model.schema.types import Scalar

    Longs = npt.NDArray[np.int64]
    Uint32Array = npt.NDArray[np.uint32]

_UNITS = {
    TransformKind.YEAR: "Y",
    TransformKind.MONTH: "M",
    TransformKind.DAY: "D",
    TransformKind.HOUR: "h",
}
_STORED_AS = {
    Primitive.DATE: pa.int32(),
    Primitive.TIME: pa.int64(),
    Primitive.TIMESTAMP: pa.int64(),
    Primitive.TIMESTAMPTZ: pa.int64(),
    Primitive.TIMESTAMP_NS: pa.int64(),
    Primitive.TIMESTAMPTZ_NS: pa.int64(),
}
_RESOLUTIONS = {
    Primitive.DATE: "D",
    Primitive.TIMESTAMP_NS: "ns",
    Primitive.TIMESTAMPTZ_NS: "ns",
}
_NANOSECONDS = frozenset({Primitive.TIMESTAMP_NS, Primitive.TIMESTAMPTZ_NS})
# Java's hash is signed and its sign bit is cleared before the remainder.
_POSITIVE = np.uint32(0x7FFFFFFF)
_SIGN_BIT = 0x80
_DECIMAL_BYTES = 16
# Murmur3 (x86, 32 bits, seed 0), the hash of bucket: the constants of the published algorithm.
_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
_N = np.uint32(0xE6546B64)
_F1 = np.uint32(0x85EBCA6B)
_F2 = np.uint32(0xC2B2AE35)
_FIVE = np.uint32(5)
_BLOCK = 4


def column_at(rows: pa.RecordBatch, numbers: tuple[int, ...]) -> pa.Array:
    """A column by its place from the top on; null where what it is in is null."""
    column = rows.column(numbers[0])
    return pc.struct_field(column, numbers[1:]) if numbers[1:] else column


def transform_values(values: pa.Array, source: Scalar, transform: Transform) -> pa.Array:
    """The partition value of every row; null where the column is null.

    Dates, times and timestamps come as the integers Iceberg stores.
    """
    match transform.kind:
        case TransformKind.VOID:
            return pa.nulls(len(values), pa.int32())
        case TransformKind.IDENTITY:
            return _stored(values, source)
        case TransformKind.BUCKET:
            return _buckets(values, source, transform.width)
        case TransformKind.TRUNCATE:
            return _truncated(values, source, transform.width)
        case _:
            return _ordinals(values, source, _UNITS[transform.kind])


def _stored(values: pa.Array, source: Scalar) -> pa.Array:
    if isinstance(source, Primitive) and source in _STORED_AS:
        return values.view(_STORED_AS[source])
    return values.storage if isinstance(values, pa.ExtensionArray) else values


def _filled(values: pa.Array, dtype: pa.DataType) -> npt.NDArray[np.generic]:
    """The values as numbers, zero where they are null."""
    numbers = values.cast(dtype)
    return np.asarray(pc.fill_null(numbers, 0) if numbers.null_count else numbers)


def _with_nulls_of(values: pa.Array, results: npt.NDArray[np.generic]) -> pa.Array:
    mask = np.asarray(values.is_null()) if values.null_count else None
    return pa.array(results, mask=mask)


def _ordinals(values: pa.Array, source: Scalar, unit: str) -> pa.Array:
    stored = _filled(_stored(values, source), pa.int64())
    resolution = _RESOLUTIONS.get(source, "us") if isinstance(source, Primitive) else "us"
    # NumPy rounds instants down, also before 1970, as Iceberg does.
    moments = stored.astype(f"datetime64[{resolution}]").astype(f"datetime64[{unit}]")
    return _with_nulls_of(values, moments.astype(np.int64).astype(np.int32))


def _buckets(values: pa.Array, source: Scalar, count: int) -> pa.Array:
    hashes = _hashes(_stored(values, source), source)
    return _with_nulls_of(values, ((hashes & _POSITIVE) % np.uint32(count)).astype(np.int32))


def _hashes(stored: pa.Array, source: Scalar) -> npt.NDArray[np.uint32]:
    if isinstance(source, Decimal):
        return _decimal_hashes(stored)
    if isinstance(source, Fixed) or source in {
        Primitive.STRING,
        Primitive.BINARY,
        Primitive.UUID,
    }:
        return hash_bytes(*_slices(stored))
    longs = _filled(stored, pa.int64()).astype(np.int64, copy=False)
    # Nanoseconds hash as microseconds, so that a column may change its resolution.
    return hash_longs(longs // 1000 if source in _NANOSECONDS else longs)


def _slices(stored: pa.Array) -> tuple[npt.NDArray[np.uint8], Longs, Longs]:
    data = _bytes_of(stored.buffers()[-1])
    if pa.types.is_fixed_size_binary(stored.type):
        width = stored.type.byte_width
        starts = (np.arange(len(stored), dtype=np.int64) + stored.offset) * width
        return data, starts, np.full(len(stored), width, np.int64)
    offsets = np.frombuffer(stored.buffers()[1], np.int32)[
        stored.offset : stored.offset + len(stored) + 1
    ].astype(np.int64)
    return data, offsets[:-1], np.diff(offsets)


def _bytes_of(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def _limbs(stored: pa.Array) -> npt.NDArray[np.uint64]:
    """Decimals as rows of two 64-bit limbs, the low one first."""
    limbs = np.frombuffer(stored.buffers()[1], "<u8").reshape(-1, 2)
    return limbs[stored.offset : stored.offset + len(stored)]


def _decimal_hashes(stored: pa.Array) -> npt.NDArray[np.uint32]:
    limbs = np.ascontiguousarray(_limbs(stored))
    big_endian = np.ascontiguousarray(limbs.view(np.uint8).reshape(-1, _DECIMAL_BYTES)[:, ::-1])
    sign = np.where(big_endian[:, 0] >= _SIGN_BIT, np.uint8(0xFF), np.uint8(0))
    same = big_endian == sign[:, None]
    # Only the significant bytes are hashed, as from BigInteger.toByteArray.
    leading = np.where(same.all(axis=1), _DECIMAL_BYTES - 1, np.argmin(same, axis=1))
    first = big_endian[np.arange(len(limbs)), leading]
    wrong_sign = (first ^ sign) >= _SIGN_BIT
    starts = leading - wrong_sign
    rows = np.arange(len(limbs), dtype=np.int64) * _DECIMAL_BYTES
    return hash_bytes(big_endian.ravel(), rows + starts, (_DECIMAL_BYTES - starts).astype(np.int64))


def _truncated(values: pa.Array, source: Scalar, width: int) -> pa.Array:
    if source is Primitive.STRING:
        return pc.utf8_slice_codeunits(values, 0, width)
    if source is Primitive.BINARY:
        return pc.binary_slice(values, 0, width)
    if isinstance(source, Decimal):
        return _truncated_decimals(values, width)
    dtype = np.int32 if source is Primitive.INT else np.int64
    numbers = _filled(values, pa.from_numpy_dtype(dtype)).astype(dtype, copy=False)
    # Java's own arithmetic, wrapping where it wraps: readers compute the same.
    step = dtype(width)
    with np.errstate(over="ignore"):
        remainder = np.fmod(np.fmod(numbers, step) + step, step)
        return _with_nulls_of(values, numbers - remainder)


def _truncated_decimals(values: pa.Array, width: int) -> pa.Array:
    limbs = _limbs(values)
    low, high = limbs[:, 0], limbs[:, 1]
    step = np.uint64(width)
    half = np.uint64(32)
    mask = np.uint64(0xFFFFFFFF)
    remainder = np.zeros(len(limbs), np.uint64)
    # A width has 31 bits, so that a remainder and the next 32 bits fit into 64 bits.
    for limb in (high >> half, high & mask, low >> half, low & mask):
        remainder = ((remainder << half) | limb) % step
    negative = high >= np.uint64(1 << 63)
    excess = np.uint64((1 << 128) % width)
    remainder = np.where(negative, (remainder + step - excess) % step, remainder)
    result = np.empty_like(limbs)
    result[:, 0] = low - remainder
    result[:, 1] = high - (low < remainder)
    validity = pc.is_valid(values).buffers()[1] if values.null_count else None
    truncated = pa.Array.from_buffers(
        values.type, len(values), [validity, pa.py_buffer(np.ascontiguousarray(result))]
    )
    try:
        truncated.validate(full=True)
    except pa.ArrowInvalid:
        # Iceberg cannot write such a value either; Arrow's message would show it.
        message = f"{len(values)} values: truncated to {width}, not all of them fit {values.type}"
        raise UnrepresentableValueError(message) from None
    return truncated


def hash_longs(values: npt.NDArray[np.int64]) -> Uint32Array:
    """The hash of each value as eight little-endian bytes."""
    blocks = np.ascontiguousarray(values, dtype="<i8").view("<u4").reshape(-1, 2)
    hashes = np.zeros(len(values), np.uint32)
    for column in (0, 1):
        hashes = _mix(hashes, blocks[:, column])
    return _finish(hashes, np.full(len(values), 8, np.uint32))


def hash_bytes(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> Uint32Array:
    """The hash of each slice of ``data``; as many steps as the longest slice has blocks."""
    hashes = np.zeros(len(starts), np.uint32)
    # Longest first: the slices that still have blocks are then always a prefix.
    order = np.argsort(-lengths, kind="stable")
    from_, blocks = starts[order], lengths[order] // _BLOCK
    sorted_hashes = hashes[order]
    for step in range(int(blocks[0]) if len(blocks) else 0):
        active = int(np.searchsorted(-blocks, -step, side="left"))
        at = from_[:active] + step * _BLOCK
        sorted_hashes[:active] = _mix(sorted_hashes[:active], _blocks(data, at, _BLOCK))
    hashes[order] = sorted_hashes
    _add_tails(hashes, data, starts, lengths)
    return _finish(hashes, lengths.astype(np.uint32))


def hash_text(text: str) -> int:
    """The hash of one text in UTF-8."""
    data = np.frombuffer(text.encode(), np.uint8)
    return int(hash_bytes(data, np.zeros(1, np.int64), np.array([len(data)], np.int64))[0])


def _blocks(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], width: int) -> Uint32Array:
    blocks = np.zeros(len(at), np.uint32)
    for offset in range(width):
        blocks |= data[at + offset].astype(np.uint32) << np.uint32(8 * offset)
    return blocks


def _add_tails(
    hashes: Uint32Array,
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
) -> None:
    tails = lengths % _BLOCK
    for width in range(1, _BLOCK):
        rows = np.flatnonzero(tails == width)
        if len(rows):
            blocks = _blocks(data, starts[rows] + lengths[rows] - width, width)
            hashes[rows] ^= _scramble(blocks)


def _scramble(blocks: Uint32Array) -> Uint32Array:
    mixed = blocks * _C1
    mixed = (mixed << np.uint32(15)) | (mixed >> np.uint32(17))
    return mixed * _C2


def _mix(hashes: Uint32Array, blocks: Uint32Array) -> Uint32Array:
    mixed = hashes ^ _scramble(blocks)
    mixed = (mixed << np.uint32(13)) | (mixed >> np.uint32(19))
    return mixed * _FIVE + _N


def _finish(hashes: Uint32Array, lengths: Uint32Array) -> Uint32Array:
    final = hashes ^ lengths
    final ^= final >> np.uint32(16)
    final *= _F1
    final ^= final >> np.uint32(13)
    final *= _F2
    return final ^ (final >> np.uint32(16))
