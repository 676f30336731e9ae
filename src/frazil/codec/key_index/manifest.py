"""The manifest of a key index as JSON: everything about it but its entries.

Files, deletes and blobs are tables of columns of equal length, because a table of ten thousand
files is written with every merge. ``docs/reference/key-index.md`` describes each member.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from frazil.codec.json_record import JsonRecord, parse_json
from frazil.codec.malformed import MalformedFileError, quoted
from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.key_index import (
    DeleteKind,
    DeletePointer,
    IndexedFile,
    IndexKey,
    IndexManifest,
    IndexRun,
    RunBlob,
    RunPart,
    plan_key_hash,
)
from frazil.model.schema.types import parse_scalar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from frazil.model.schema.types import Scalar

VERSION = 1

_LONG = range(-(1 << 63), 1 << 63)
_NATURAL = range(1 << 63)
_POSITIVE = range(1, 1 << 63)
_INT = range(1 << 31)
# Entries hold ordinals in 32 bits with a sign.
_ORDINALS = range((1 << 31) + 1)
_CHECKSUM = range(1 << 32)
# A run of so many buckets would have more files than entries.
_BITS = range(33)

_MEMBERS = (
    "version", "table_uuid", "snapshot_id", "generation", "key", "sequence_type", "next_ordinal",
    "young_entries", "idle_deletes", "runs", "folders", "placements", "files", "deletes",
)  # fmt: skip
_KEY = ("field_ids", "types", "hash")
_RUN = ("name", "bits", "parts", "blobs")
# Only where it is not zero: a version that does not know it refuses the manifest, and rebuilds.
_FIRST_ORDINAL = "first_ordinal"
_PARTS = ("folder", "name", "size")
_BLOBS = ("part", "bucket", "offset", "length", "entries", "checksum")
_PLACEMENT = ("spec_id", "partition")
_FILES = ("ordinal", "folder", "name", "rows", "size", "placement")
_DELETES = (
    "file", "kind", "folder", "name", "rows", "size", "placement", "shared", "offset", "length",
)  # fmt: skip


def encode_manifest(manifest: IndexManifest) -> bytes:
    """One line of JSON; ValueError when a delete lies with a file that it does not concern."""
    shared = _Locations()
    document = {
        "version": VERSION,
        "table_uuid": manifest.table_uuid,
        "snapshot_id": manifest.snapshot_id,
        "generation": manifest.generation,
        "key": {
            "field_ids": list(manifest.key.field_ids),
            "types": [str(each) for each in manifest.key.types],
            "hash": manifest.key.hash.value,
        },
        "sequence_type": None if manifest.sequence_type is None else str(manifest.sequence_type),
        "next_ordinal": manifest.next_ordinal,
        "young_entries": manifest.young_entries,
        "idle_deletes": manifest.idle_deletes,
        "runs": [_run_to_json(each, shared) for each in manifest.runs],
        "files": _transposed(_FILES, (_file_row(each, shared) for each in manifest.files)),
        "deletes": _transposed(
            _DELETES,
            (_delete_row(each, file, shared) for file in manifest.files for each in file.deletes),
        ),
        "folders": list(shared.folders),
        "placements": [dict(zip(_PLACEMENT, each, strict=True)) for each in shared.placements],
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def decode_manifest(data: bytes) -> IndexManifest:
    """The manifest in the bytes; MalformedFileError if they hold none."""
    document = parse_json(data)
    _refuse_other_version(document)
    manifest = JsonRecord("the manifest", document, _MEMBERS)
    key = _key(JsonRecord("the key", manifest.member("key"), _KEY))
    sequence = manifest.member("sequence_type")
    next_ordinal = manifest.number("next_ordinal", _ORDINALS)
    folders = manifest.texts("folders")
    files = _files(manifest, folders, next_ordinal)
    runs = tuple(
        _run(f"run {number}", each, folders, next_ordinal)
        for number, each in enumerate(manifest.items("runs"))
    )
    if len({each.name for each in runs}) < len(runs):
        raise _malformed("expected runs of different names")
    return IndexManifest(
        table_uuid=manifest.text("table_uuid"),
        snapshot_id=manifest.number("snapshot_id", _LONG),
        generation=manifest.text("generation"),
        key=key,
        next_ordinal=next_ordinal,
        files=files,
        runs=runs,
        young_entries=manifest.number("young_entries", _NATURAL),
        idle_deletes=manifest.number("idle_deletes", _NATURAL),
        sequence_type=None if sequence is None else _type(manifest.text("sequence_type")),
    )


class _Locations:
    """Folders and partitions, each written once and then referenced by its number."""

    def __init__(self) -> None:
        self.folders: dict[str, int] = {}
        self.placements: dict[tuple[int, str], int] = {}

    def split(self, location: str) -> tuple[int, str]:
        end = location.rfind("/") + 1
        return self.folders.setdefault(location[:end], len(self.folders)), location[end:]

    def placement(self, spec_id: int, partition: str) -> int:
        return self.placements.setdefault((spec_id, partition), len(self.placements))


def _file_row(file: IndexedFile, shared: _Locations) -> tuple[object, ...]:
    folder, name = shared.split(file.location)
    placement = shared.placement(file.spec_id, file.partition)
    return file.ordinal, folder, name, file.rows, file.size, placement


def _delete_row(delete: DeletePointer, file: IndexedFile, shared: _Locations) -> tuple[object, ...]:
    if delete.data_file not in {None, file.location}:
        raise ValueError("a delete lies with another data file than its own")
    folder, name = shared.split(delete.location)
    placement = shared.placement(delete.spec_id, delete.partition)
    return (
        file.ordinal, delete.kind.value, folder, name, delete.rows, delete.file_size, placement,
        delete.data_file is None, delete.offset, delete.length,
    )  # fmt: skip


def _transposed(
    names: tuple[str, ...], rows: Iterable[tuple[object, ...]]
) -> dict[str, Sequence[object]]:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return dict(zip(names, columns, strict=True))


def _run_to_json(run: IndexRun, shared: _Locations) -> dict[str, object]:
    blobs = (
        (number, each.bucket, each.offset, each.length, each.entries, each.checksum)
        for number, part in enumerate(run.parts)
        for each in part.blobs
    )
    document: dict[str, object] = {
        "name": run.name,
        "bits": run.bits,
        "parts": _transposed(
            _PARTS, ((*shared.split(part.location), part.size) for part in run.parts)
        ),
        "blobs": _transposed(_BLOBS, blobs),
    }
    return document | ({_FIRST_ORDINAL: run.first_ordinal} if run.first_ordinal else {})


def _refuse_other_version(document: object) -> None:
    version = document.get("version") if isinstance(document, dict) else None
    if type(version) is not int:
        raise _malformed("expected a manifest with a version")
    if version != VERSION:
        what = f"expected a key index of version {VERSION}, found version {version}"
        raise _malformed(what)


def _key(record: JsonRecord) -> IndexKey:
    field_ids = tuple(record.numbers("field_ids", _INT))
    types = tuple(_type(each) for each in record.texts("types"))
    if len(types) != len(field_ids) or len(set(field_ids)) < len(field_ids):
        raise record.refusal("field_ids", "different, and one for each type")
    try:
        expected = plan_key_hash(types)
    except UnsupportedSchemaChangeError as error:
        raise record.refusal("types", "types that a key can have") from error
    if record.text("hash") != expected:
        raise record.refusal("hash", f"{expected}, as follows from its types")
    return IndexKey(field_ids=field_ids, types=types, hash=expected)


def _type(name: str) -> Scalar:
    try:
        return parse_scalar(name)
    except UnsupportedSchemaChangeError as error:
        what = f"expected a type of Iceberg's, found {quoted(name)}"
        raise _malformed(what) from error


def _files(manifest: JsonRecord, folders: list[str], next_ordinal: int) -> tuple[IndexedFile, ...]:
    placements = [
        _placement(JsonRecord(f"placement {number}", each, _PLACEMENT))
        for number, each in enumerate(manifest.items("placements"))
    ]
    table = JsonRecord("the files", manifest.member("files"), _FILES)
    table.check_lengths()
    ordinals = table.numbers("ordinal", range(next_ordinal))
    if len(set(ordinals)) < len(ordinals):
        raise table.refusal("ordinal", "different for each file")
    locations = _locations(table, folders)
    if len(set(locations)) < len(locations):
        raise table.refusal("name", "different for each file")
    owners = dict(zip(ordinals, locations, strict=True))
    deletes = JsonRecord("the deletes", manifest.member("deletes"), _DELETES)
    deletes_of = _deletes(deletes, owners, folders, placements)
    rows, sizes = table.numbers("rows", _NATURAL), table.numbers("size", _NATURAL)
    placement_of = table.indexed("placement", placements)
    return tuple(
        IndexedFile(
            ordinal=ordinal,
            location=location,
            rows=row_count,
            size=size,
            spec_id=placements[placement][0],
            partition=placements[placement][1],
            deletes=tuple(deletes_of.get(ordinal, ())),
        )
        for ordinal, location, row_count, size, placement in zip(
            ordinals, locations, rows, sizes, placement_of, strict=True
        )
    )


def _placement(record: JsonRecord) -> tuple[int, str]:
    return record.number("spec_id", _INT), record.text("partition")


def _locations(table: JsonRecord, folders: list[str]) -> list[str]:
    names = table.texts("name")
    chosen = table.indexed("folder", folders)
    return [folders[folder] + name for folder, name in zip(chosen, names, strict=True)]


def _deletes(
    table: JsonRecord,
    owners: dict[int, str],
    folders: list[str],
    placements: list[tuple[int, str]],
) -> dict[int, list[DeletePointer]]:
    """What is deleted in each file, by the file's ordinal."""
    table.check_lengths()
    files = table.numbers("file", _INT)
    if not owners.keys() >= set(files):
        raise table.refusal("file", "the ordinal of a file")
    kinds, shared = _kinds(table), table.booleans("shared")
    offsets = table.numbers_or_nulls("offset", _NATURAL)
    lengths = table.numbers_or_nulls("length", _NATURAL)
    if not all(map(_is_pointer, kinds, shared, offsets, lengths)):
        raise table.refusal("offset", "that of a vector of one file, with a length, or null")
    placement_of = [placements[each] for each in table.indexed("placement", placements)]
    locations = _locations(table, folders)
    rows, sizes = table.numbers("rows", _NATURAL), table.numbers("size", _NATURAL)
    found: dict[int, list[DeletePointer]] = {}
    for number, file in enumerate(files):
        pointer = DeletePointer(
            kind=kinds[number],
            location=locations[number],
            file_size=sizes[number],
            rows=rows[number],
            spec_id=placement_of[number][0],
            partition=placement_of[number][1],
            data_file=None if shared[number] else owners[file],
            offset=offsets[number],
            length=lengths[number],
        )
        found.setdefault(file, []).append(pointer)
    return found


# By position, because it is mapped over columns.
def _is_pointer(
    kind: DeleteKind,
    shared: bool,  # noqa: FBT001
    offset: int | None,
    length: int | None,
) -> bool:
    if kind is DeleteKind.VECTOR:
        return not (shared or offset is None or length is None)
    return offset is None and length is None


def _kinds(table: JsonRecord) -> list[DeleteKind]:
    kinds = {each.value: each for each in DeleteKind}
    try:
        return [kinds[each] for each in table.texts("kind")]
    except KeyError as error:
        raise table.refusal("kind", " or ".join(kinds)) from error


def _run(name: str, members: object, folders: list[str], next_ordinal: int) -> IndexRun:
    is_relative = isinstance(members, dict) and _FIRST_ORDINAL in members
    record = JsonRecord(name, members, (*_RUN, _FIRST_ORDINAL) if is_relative else _RUN)
    first = record.number(_FIRST_ORDINAL, range(1, next_ordinal + 1)) if is_relative else 0
    bits = record.number("bits", _BITS)
    parts = JsonRecord("the parts", record.member("parts"), _PARTS)
    parts.check_lengths()
    locations, sizes = _locations(parts, folders), parts.numbers("size", _NATURAL)
    table = JsonRecord("the blobs", record.member("blobs"), _BLOBS)
    table.check_lengths()
    buckets = table.numbers("bucket", range(1 << bits))
    if len(set(buckets)) < len(buckets):
        raise table.refusal("bucket", "different for each blob")
    offsets, lengths = table.numbers("offset", _NATURAL), table.numbers("length", _NATURAL)
    entries, checksums = table.numbers("entries", _POSITIVE), table.numbers("checksum", _CHECKSUM)
    blobs: list[list[RunBlob]] = [[] for _ in locations]
    for part, *facts in zip(
        table.indexed("part", locations), buckets, offsets, lengths, entries, checksums, strict=True
    ):
        blob = RunBlob(*facts)
        if blob.offset + blob.length > sizes[part]:
            raise table.refusal("length", "within the blob's file")
        blobs[part].append(blob)
    parts_ = map(RunPart, locations, sizes, map(tuple, blobs))
    return IndexRun(record.text("name"), bits, tuple(parts_), first)


def _malformed(what: str) -> MalformedFileError:
    # The parts of a JSON document have no useful offset once it is parsed.
    return MalformedFileError(what, offset=0)
