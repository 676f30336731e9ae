"""The head of a key index: one Puffin file with the manifest and the youngest entries."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from frazil.codec.key_index.manifest import decode_manifest, encode_manifest
from frazil.codec.key_index.run import BLOB_TYPE as RUN_BLOB_TYPE
from frazil.codec.malformed import MalformedFileError
from frazil.codec.puffin import Blob, BlobCompression, read_blob, read_footer, write_puffin
from frazil.model.key_index import FORMAT_NAME
from frazil.version import __version__

if TYPE_CHECKING:
    from frazil.codec.puffin import BlobMetadata, Footer, PuffinFile
    from frazil.model.key_index import IndexManifest

MANIFEST_BLOB_TYPE = FORMAT_NAME

_CHECKSUM = "crc32"
_HASH_BITS = "128"


def write_head(manifest: IndexManifest, young: bytes | None) -> PuffinFile:
    """The file to be put next to the table's metadata.

    ``young`` is the run of the manifest's ``young_entries``, and None when there are none.
    """
    if (young is None) != (manifest.young_entries == 0):
        raise ValueError("a head has a young run exactly when it has young entries")
    encoded = encode_manifest(manifest)
    blobs = [_blob(MANIFEST_BLOB_TYPE, encoded, manifest, manifest.entries, BlobCompression.ZSTD)]
    if young is not None:
        # Its pages are compressed already.
        count = manifest.young_entries
        blobs.append(_blob(RUN_BLOB_TYPE, young, manifest, count, BlobCompression.NONE))
    return write_puffin(blobs, {"created-by": f"frazil {__version__}", **_facts(manifest)})


def read_head(data: bytes) -> tuple[IndexManifest, bytes | None]:
    """The manifest and the young run of a head; MalformedFileError unless it is complete.

    The run's content is not decoded, but its checksum is verified.
    """
    footer = read_footer(data, file_size=len(data))
    encoded = _content(footer, MANIFEST_BLOB_TYPE, data)
    if encoded is None:
        raise MalformedFileError("expected a manifest in the head of a key index", offset=0)
    manifest = decode_manifest(encoded)
    _check_facts(footer, manifest)
    young = _content(footer, RUN_BLOB_TYPE, data)
    if (young is None) != (manifest.young_entries == 0):
        what = f"expected a run of {manifest.young_entries} young entries or none, found otherwise"
        raise MalformedFileError(what, offset=0)
    return manifest, young


def _facts(manifest: IndexManifest) -> dict[str, str]:
    """What a reader may want to know before it opens the manifest."""
    return {
        "table_uuid": manifest.table_uuid,
        "snapshot_id": str(manifest.snapshot_id),
        "key_field_ids": ",".join(map(str, manifest.key.field_ids)),
        "hash_bits": _HASH_BITS,
        "num_rows": str(manifest.entries),
    }


def _blob(
    type_: str, data: bytes, manifest: IndexManifest, entries: int, codec: BlobCompression
) -> Blob:
    return Blob(
        type_,
        data,
        fields=manifest.key.field_ids,
        snapshot_id=manifest.snapshot_id,
        codec=codec,
        properties={
            _CHECKSUM: str(zlib.crc32(data)),
            "hash_bits": _HASH_BITS,
            "num_rows": str(entries),
        },
    )


def _check_facts(footer: Footer, manifest: IndexManifest) -> None:
    for name, fact in _facts(manifest).items():
        if footer.properties.get(name) != fact:
            what = f"expected the footer to have the manifest's `{name}`"
            raise MalformedFileError(what, offset=0)


def _content(footer: Footer, type_: str, data: bytes) -> bytes | None:
    """The one blob of this type, checked; None when there is none."""
    found = [blob for blob in footer.blobs if blob.type == type_]
    if len(found) > 1:
        what = f"expected one blob of type {type_}, found {len(found)}"
        raise MalformedFileError(what, offset=found[1].offset)
    return _checked(found[0], data) if found else None


def _checked(blob: BlobMetadata, data: bytes) -> bytes:
    content = bytes(read_blob(blob, data[blob.offset : blob.end]))
    if blob.properties.get(_CHECKSUM) != str(zlib.crc32(content)):
        what = "expected another CRC-32: the head of the key index is damaged"
        raise MalformedFileError(what, offset=blob.offset)
    return content
