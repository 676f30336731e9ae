"""Text and bytes of files that nobody vouches for, in forms that are safe to print."""

from __future__ import annotations

from base64 import b64encode
from typing import TypeAlias

ShownBytes: TypeAlias = str | dict[str, str] | None


def shown(text: str) -> str:
    """Text without control characters."""
    return text if text.isprintable() else ascii(text)


def shown_bytes(data: bytes | None) -> ShownBytes:
    """Bytes as JSON has them: text if they are UTF-8, else an object with their base64.

    The two cannot be taken for each other; control characters are spelt when JSON is written.
    """
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
