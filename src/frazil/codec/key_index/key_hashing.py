"""The hash of integer, date, timestamp and uuid keys, for whole columns of Arrow; pure.

Other keys go through SHA-256, which Spark computes (``mirror/index/key_expressions.py``). Both are
the same specification, to which tests hold them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.model.key_index import KeyHash

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

# Of XXH64, with Spark's seed.
_SEED = np.uint64(42)
_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_EIGHT_BYTES = np.uint64(8)
_BITS = 64
_UUID = pa.binary(16)


def hashes_columns(hash_: KeyHash) -> bool:
    """Whether ``hash_column`` computes this hash."""
    return hash_ is not KeyHash.SHA256


def hash_column(column: pa.Array, hash_: KeyHash) -> tuple[Hashes, Hashes | None]:
    """The halves of the hash of each key, none of which is null; no lower half means zero.

    The column is one of integers, dates, timestamps in microseconds, or of uuids as 16 bytes.
    """
    if hash_ is KeyHash.UUID:
        fixed = column.cast(_UUID)
        halves = np.frombuffer(fixed.buffers()[1], ">u8")[2 * fixed.offset :][: 2 * len(fixed)]
        return _xxh64(halves[0::2].astype(np.uint64)), halves[1::2].astype(np.uint64)
    # Dates are days in four bytes, timestamps microseconds in eight.
    days = pa.types.is_date32(column.type)
    number = column.cast(pa.int32()).cast(pa.int64()) if days else column.cast(pa.int64())
    return _xxh64(number.to_numpy(zero_copy_only=False).view(np.uint64)), None


def _xxh64(numbers: Hashes) -> Hashes:
    """XXH64 of the eight bytes of each number: NumPy's unsigned arithmetic is modulo 2^64."""
    mixed = _rotated(numbers * _PRIME_2, 31) * _PRIME_1
    with np.errstate(over="ignore"):
        mixed ^= _SEED + _PRIME_5 + _EIGHT_BYTES
    mixed = _rotated(mixed, 27) * _PRIME_1
    mixed += _PRIME_4
    for shift, prime in ((33, _PRIME_2), (29, _PRIME_3)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= prime
    mixed ^= mixed >> np.uint64(32)
    return mixed


def _rotated(bits: Hashes, by: int) -> Hashes:
    turned: Hashes = (bits << np.uint64(by)) | (bits >> np.uint64(_BITS - by))
    return turned
