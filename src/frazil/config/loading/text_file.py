"""Bounded reading: a configuration is a small regular file of UTF-8 text, or it is refused."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# Three screens are the aim and thousands of tables the exception; those still fit, and any
# text of this size is read or refused within two seconds.
LARGEST_DOCUMENT = 2**19
# A service account key or a certificate chain has a few kilobytes.
LARGEST_VALUE_FILE = 2**16


class UnreadableError(Exception):
    """The file cannot be used; the message is a sentence without any of its content."""


def read_text(path: Path, *, limit: int) -> str:
    """Read a regular file of at most ``limit`` bytes as UTF-8.

    Never blocks on a pipe and never reads a device. Raises UnreadableError.
    """
    data = _read_bytes(path, limit=limit)
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise UnreadableError("starts with a byte order mark; save it as UTF-8 without one")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        sentence = f"is not UTF-8 text: byte {error.start + 1} does not belong to a character"
        raise UnreadableError(sentence) from None
    if "\0" in text:
        raise UnreadableError("holds a NUL character; it must be plain text")
    return text


def _read_bytes(path: Path, *, limit: int) -> bytes:
    # Without O_NONBLOCK, opening a pipe without a writer would wait for ever.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except ValueError:
        raise UnreadableError("is not a possible file name") from None
    except OSError as error:
        raise UnreadableError(_reason(error)) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnreadableError("is not a regular file")
    with os.fdopen(handle, "rb") as file:
        try:
            data = file.read(limit + 1)
        except OSError as error:
            raise UnreadableError(_reason(error)) from None
    if len(data) > limit:
        sentence = f"is larger than {limit // 1024} KiB, which is the most a file may have here"
        raise UnreadableError(sentence)
    return data


def _reason(error: OSError) -> str:
    return f"cannot be read: {(error.strerror or 'unknown reason').lower()}"
