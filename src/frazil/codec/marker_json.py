"""The marker as the JSON text of a table property and of snapshot summaries."""

from __future__ import annotations

import json
from collections.abc import Mapping

from frazil.codec.malformed import MalformedFileError
from frazil.model.marker import Marker, Position, SnapshotRef

VERSION = 1


def encode_marker(marker: Marker) -> str:
    """One line of JSON; the same marker always gives the same text."""
    position = marker.position
    document: dict[str, object] = {
        "version": VERSION,
        "pipeline": marker.pipeline,
        "source": marker.source,
        "epoch": marker.epoch,
        "position": dict(position) if isinstance(position, Mapping) else position,
        "sequence": marker.sequence,
        "truncated": marker.truncated,
        "batch": marker.batch,
    }
    if marker.witness is not None:
        document["witness"] = marker.witness
    if marker.snapshot is not None:
        document["snapshot"] = {"id": marker.snapshot.id, "sequence": marker.snapshot.sequence}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def decode_marker(text: str) -> Marker:
    """Read a marker back; what is not one of ours is refused, never guessed."""
    try:
        document = json.loads(text)
        version = int(document["version"])
        if version != VERSION:
            message = f"expected a marker of version {VERSION}, found version {version}"
            raise MalformedFileError(message, offset=0)
        snapshot = document.get("snapshot")
        return Marker(
            pipeline=str(document["pipeline"]),
            source=str(document["source"]),
            epoch=int(document["epoch"]),
            position=_position(document["position"]),
            sequence=_text_or_none(document["sequence"]),
            truncated=_text_or_none(document["truncated"]),
            batch=str(document["batch"]),
            witness=_text_or_none(document.get("witness")),
            snapshot=snapshot and SnapshotRef(int(snapshot["id"]), int(snapshot["sequence"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedFileError("expected the JSON of a marker", offset=0) from error


def _position(value: object) -> Position:
    if isinstance(value, dict):
        return {str(partition): int(offset) for partition, offset in value.items()}
    if isinstance(value, str):
        return value
    message = f"a position is text or offsets, not {type(value).__name__}"
    raise TypeError(message)


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)
