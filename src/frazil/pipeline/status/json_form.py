"""A pipeline's status as JSON and back; the names of its fields are the public ones.

What is read back equals what was written. Fields that a newer process added are ignored, and
those that an older one did not have get their defaults, so that commands of one release can read
the status of processes of another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import TypeAdapter

from frazil.pipeline.status.values import PipelineStatus, SourceStatus
from frazil.sources.health import PartitionHealth

if TYPE_CHECKING:
    from frazil.telemetry.redaction import Redactor

# Raised when a field changes its meaning; new fields do not raise it.
FORMAT: Final = 1
_SOURCE_FIELDS: Final = frozenset(each.name for each in fields(SourceStatus))
_NO_HEALTH: Final[dict[str, Any]] = {
    "details": {}, "lines": [], "summary": "", "partitions": [],
}  # fmt: skip
_STATUS: Final = TypeAdapter(PipelineStatus)


def status_to_json(status: PipelineStatus) -> dict[str, object]:
    """The status in what the json module takes; times carry their zone.

    Three facts that can be computed are there for programs that do not want to: ``lag_seconds``,
    ``stopped``, the names of the tables that require action, and ``action_required``.
    """
    document = _STATUS.dump_python(status, mode="json")
    return {
        "format": FORMAT,
        **document,
        "source": _flattened(document["source"]),
        "lag_seconds": status.lag_seconds,
        "stopped": [each.table for each in status.stopped],
        "action_required": status.action_required,
    }


def status_from_json(document: object) -> PipelineStatus:
    """Read what ``status_to_json`` wrote; raises ValueError on what is no status."""
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        raise ValueError("this is no status, or one of a form that this release cannot read")
    source = _nested(document.get("source"))
    return _STATUS.validate_json(json.dumps({**document, "source": source}), strict=True)


def _flattened(source: dict[str, Any] | None) -> object:
    """With the facts of the source's health among its own fields, and the lag of partitions."""
    if source is None:
        return None
    health = source.pop("health") or _NO_HEALTH.copy()
    health["partitions"] = [{**each, "lag": _lag(each)} for each in health["partitions"]]
    # Known to scripts, also as null.
    return {**source, "slot": None, **health.pop("details"), **health}


def _lag(partition: dict[str, Any]) -> int | None:
    return PartitionHealth(**partition).lag


def _nested(source: object) -> object:
    """With its health apart: each object that is not a field of the source is a detail of it."""
    if not isinstance(source, Mapping):
        return source
    details = {
        name: value
        for name, value in source.items()
        if name not in _SOURCE_FIELDS and isinstance(value, Mapping) and _is_flat(value)
    }
    said = {name: source.get(name, empty) for name, empty in _NO_HEALTH.items()}
    health = {**said, "details": details}
    return {**source, "health": health if any(health.values()) else None}


def _is_flat(value: Mapping[object, object]) -> bool:
    # What a newer process nests deeper is ignored.
    return all(each is None or isinstance(each, str | int | float) for each in value.values())


def redact_status(status: PipelineStatus, redactor: Redactor) -> PipelineStatus:
    """The same without a secret in any of its texts; names are texts too."""
    # A table's name is in each of its commits, and a text costs its length each time.
    return cast("PipelineStatus", _redacted(status, cache(redactor.redact)))


def _redacted(value: object, redact: Callable[[str], str]) -> object:
    match value:
        case Enum():
            return value
        case str():
            return redact(value)
        case tuple():
            return tuple(_redacted(each, redact) for each in value)
        case Mapping():
            return {redact(str(name)): _redacted(each, redact) for name, each in value.items()}
        case _ if is_dataclass(value) and not isinstance(value, type):
            shown = {
                each.name: _redacted(getattr(value, each.name), redact) for each in fields(value)
            }
            return replace(value, **shown)
        case _:
            return value
