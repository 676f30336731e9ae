"""Vectorised Murmur3 (x86, 32 bits, seed 0): the hash of Iceberg's bucket transform."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Uint32Array = npt.NDArray[np.uint32]

# The constants of the published algorithm.
_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
_N = np.uint32(0xE6546B64)
_F1 = np.uint32(0x85EBCA6B)
_F2 = np.uint32(0xC2B2AE35)
_FIVE = np.uint32(5)
_BLOCK = 4


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
