"""Headers of records as text: the very JSON that KafScale's processor writes, which is Go's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from frazil.codec.kfs.records import parse_headers

if TYPE_CHECKING:
    from collections.abc import Mapping

# Go escapes what HTML and JavaScript could trip over. A byte that is no UTF-8 is a surrogate here.
_ESCAPED = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029\udc80-\udcff]')
_SHORT: Mapping[str, str] = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}
_FIRST_SURROGATE = "\udc80"
_LAST_SURROGATE = "\udcff"


def header_texts(blocks: pa.BinaryArray) -> pa.StringArray:
    """A JSON array of keys and values for each block of headers; empty where there is none."""
    if blocks.null_count == len(blocks):
        return pa.repeat(pa.scalar(""), len(blocks))
    # Few differ: each is read once.
    encoded = blocks.dictionary_encode()
    texts = pa.array(list(map(_text, encoded.dictionary.to_pylist())), pa.string())
    return pc.fill_null(texts.take(encoded.indices), "")


def _text(block: bytes) -> str:
    pairs = (
        f'{{"key":"{_escape(key)}","value":"{_escape(value or b"")}"}}'
        for key, value in parse_headers(block)
    )
    return f"[{','.join(pairs)}]"


def _escape(text: bytes) -> str:
    return _ESCAPED.sub(_replace, text.decode(errors="surrogateescape"))


def _replace(found: re.Match[str]) -> str:
    char = found[0]
    if _FIRST_SURROGATE <= char <= _LAST_SURROGATE:
        return "\\ufffd"
    return _SHORT.get(char) or f"\\u{ord(char):04x}"
