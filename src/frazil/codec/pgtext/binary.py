"""Uuids and byte strings, which Postgres prints as hexadecimal digits."""

from __future__ import annotations

import binascii

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.codec.pgtext.grammar import Read, octets, parse_all, validity

_UUID_TEXT = 36
_UUID_DASHES = (8, 13, 18, 23)
_UUID_DIGITS = np.delete(np.arange(_UUID_TEXT), _UUID_DASHES)
_NO_UUID = "00000000-0000-0000-0000-000000000000"

# The older form of bytea_output, `escape`, never begins like this: it doubles a backslash.
_PREFIX = "\\x"
_DASH, _BACKSLASH, _X = b"-\\x"


def read_uuids(text: pa.StringArray) -> Read:
    """The sixteen bytes of each."""
    return Read(parse_all(text, _parse_uuids))


def read_bytea(text: pa.StringArray) -> Read:
    """The bytes of each; the session must print them with ``bytea_output = hex``."""
    return Read(parse_all(text, _parse_bytea))


def _parse_uuids(text: pa.StringArray) -> pa.Array:
    offsets, data = octets(pc.fill_null(text, _NO_UUID))
    if (np.diff(offsets) != _UUID_TEXT).any():
        raise ValueError("a uuid has 36 characters")
    signs = data.reshape(-1, _UUID_TEXT)
    if (signs[:, _UUID_DASHES] != _DASH).any():
        raise ValueError("a uuid has dashes between its parts")
    # Refuses what is not a digit.
    buffers = [validity(text), pa.py_buffer(binascii.unhexlify(signs[:, _UUID_DIGITS].tobytes()))]
    return pa.Array.from_buffers(pa.binary(16), len(text), buffers)


def _parse_bytea(text: pa.StringArray) -> pa.Array:
    offsets, data = octets(pc.fill_null(text, _PREFIX))
    starts, sizes = offsets[:-1], np.diff(offsets)
    if (sizes < len(_PREFIX)).any() or (sizes % 2).any():
        raise ValueError("bytes are printed as a prefix and pairs of digits")
    if (data[starts] != _BACKSLASH).any() or (data[starts + 1] != _X).any():
        raise ValueError("bytes are printed with a prefix")
    digit = np.ones(len(data), np.bool_)
    digit[starts] = False
    digit[starts + 1] = False
    ends = np.zeros(len(offsets), np.int32)
    np.cumsum(sizes // 2 - 1, out=ends[1:])
    digits = binascii.unhexlify(data[digit].tobytes())
    buffers = [validity(text), pa.py_buffer(ends), pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.binary(), len(text), buffers)
