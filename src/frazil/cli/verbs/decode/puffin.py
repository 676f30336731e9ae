"""The verb ``decode puffin``: the blobs of a Puffin file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

from frazil.cli.output import OutputFormat, write_json, write_line, write_table
from frazil.cli.verbs.decode.untrusted import shown
from frazil.codec.deletes.deletion_vector import (
    BLOB_TYPE,
    LARGEST_BLOB,
    decode_deletion_vector,
    has_valid_checksum,
)
from frazil.codec.malformed import MalformedFileError
from frazil.codec.puffin import BlobCompression, TailTooShortError, check_magic, read_footer
from frazil.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from frazil.codec.puffin import BlobMetadata, Footer

# Footers of up to a hundred blobs come with the first read.
_FIRST_TAIL = 64 << 10
_NEXT_STEP = "restore the file from a copy, or rewrite what it belongs to"

Facts: TypeAlias = dict[str, int | bool | str]


def show_puffin(path: Path, output: OutputFormat) -> None:
    """Print a Puffin file's footer, and of each deletion vector what it holds.

    Reads the footer and the deletion vectors only, one at a time.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        message = f"{path} cannot be opened: {error.strerror}."
        raise ConfigError(message, next_step="name a Puffin file that is there") from error
    with file:
        try:
            damaged = _print_file(path, file, output)
        except MalformedFileError as error:
            message = f"{path} is damaged or no Puffin file: {error}."
            raise StorageError(message, next_step=_NEXT_STEP) from error
        except OSError as error:
            message = f"{path} cannot be read: {error.strerror}."
            raise StorageError(message) from error
    if damaged:
        message = f"deletion vectors of {path} are damaged: {damaged}."
        raise StorageError(message, next_step=_NEXT_STEP)


def _print_file(path: Path, file: BinaryIO, output: OutputFormat) -> int:
    """Print all there is and return how many deletion vectors are damaged."""
    size = file.seek(0, os.SEEK_END)
    footer = _load_footer(file, size)
    vectors = _load_vectors(file, footer)
    if output is OutputFormat.JSON:
        return _print_lines(path, size, footer, vectors)
    return _print_table(path, size, footer, vectors)


def _load_footer(file: BinaryIO, size: int) -> Footer:
    check_magic(_load_range(file, 0, min(size, 4)), offset=0)
    tail = min(size, _FIRST_TAIL)
    try:
        return read_footer(_load_range(file, size - tail, tail), file_size=size)
    except TailTooShortError as short:
        tail = short.needed
    return read_footer(_load_range(file, size - tail, tail), file_size=size)


def _load_range(file: BinaryIO, offset: int, length: int) -> bytes:
    file.seek(offset)
    data = file.read(length)
    if len(data) < length:
        what = f"expected {length} bytes, found {len(data)}"
        raise MalformedFileError(what, offset=offset)
    return data


def _load_vectors(file: BinaryIO, footer: Footer) -> Iterator[tuple[int, BlobMetadata, Facts]]:
    for number, blob in enumerate(footer.blobs):
        yield number, blob, _load_vector(file, blob) if blob.type == BLOB_TYPE else {}


def _load_vector(file: BinaryIO, blob: BlobMetadata) -> Facts:
    """What a deletion vector holds, or the damage that prevents reading it."""
    if blob.codec is not BlobCompression.NONE or blob.length > LARGEST_BLOB:
        what = "a deletion vector is never compressed or larger than 2 GiB"
        return {"crc_valid": False, "damage": what}
    data = _load_range(file, blob.offset, blob.length)
    try:
        vector = decode_deletion_vector(data)
    except MalformedFileError as error:
        # The error counts from the start of the blob.
        return {"crc_valid": has_valid_checksum(data), "damage": f"in the blob {error}"}
    facts: Facts = {"crc_valid": True, "cardinality": vector.cardinality}
    if vector.cardinality:
        facts |= {"min": vector.smallest, "max": vector.largest}
    if blob.properties.get("cardinality") != str(vector.cardinality):
        facts["damage"] = "the footer has another cardinality"
    return facts


def _print_lines(
    path: Path,
    size: int,
    footer: Footer,
    vectors: Iterator[tuple[int, BlobMetadata, Facts]],
) -> int:
    damaged = 0
    first = {
        "file": str(path),
        "size": size,
        "footer_size": footer.size,
        "blobs": len(footer.blobs),
        "properties": dict(footer.properties),
    }
    write_json(first, indent=None)
    for number, blob, facts in vectors:
        line: dict[str, object] = {
            "blob": number,
            "type": blob.type,
            "fields": list(blob.fields),
            # As text, because many readers of JSON round such numbers.
            "snapshot_id": str(blob.snapshot_id),
            "sequence_number": blob.sequence_number,
            "offset": blob.offset,
            "length": blob.length,
            "codec": blob.codec.value,
            "properties": dict(blob.properties),
        }
        write_json({**line, **facts}, indent=None)
        damaged += "damage" in facts
    return damaged


def _print_table(
    path: Path,
    size: int,
    footer: Footer,
    vectors: Iterator[tuple[int, BlobMetadata, Facts]],
) -> int:
    damaged = 0
    write_line(f"# {path} ({size} bytes, of them {footer.size} footer)")
    for key, value in footer.properties.items():
        write_line(f"# {shown(key)}: {shown(value)}")
    rows = []
    for number, blob, facts in vectors:
        content = {**blob.properties, **facts}
        details = (f"{shown(key)}={shown(str(value))}" for key, value in content.items())
        rows.append(
            (
                str(number),
                shown(blob.type),
                str(blob.offset),
                str(blob.length),
                blob.codec.value,
                str(blob.snapshot_id),
                str(blob.sequence_number),
                ",".join(map(str, blob.fields)),
                " ".join(details),
            )
        )
        damaged += "damage" in facts
    header = ("BLOB", "TYPE", "OFFSET", "LENGTH", "CODEC", "SNAPSHOT", "SEQUENCE", "FIELDS")
    write_table(rows, header=(*header, "CONTENT"))
    return damaged
