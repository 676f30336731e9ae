"""A pipeline's status as JSON and back; the names of its fields are the public ones.

What is read back equals what was written. Fields that a newer process added are passed over, and
those that an older one did not have get their defaults, so that commands of one release can ask
processes of another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar, cast

from frazil.pipeline.status.values import (
    CommitStatus,
    CopyStatus,
    IndexStatus,
    Phase,
    PipelineStatus,
    ProblemStatus,
    Sample,
    SourceStatus,
    TableStatus,
)
from frazil.sources.health import HealthFacts, HealthLine

if TYPE_CHECKING:
    from frazil.sources.health import Fact
    from frazil.telemetry.redaction import Redactor

# Raised when a field changes its meaning; new fields do not raise it.
FORMAT: Final = 1
_SOURCE_FIELDS: Final = frozenset(each.name for each in fields(SourceStatus))

_T = TypeVar("_T")


def status_to_json(status: PipelineStatus) -> dict[str, object]:
    """The status in what the json module takes; times carry their zone.

    Three facts that can be computed are there for programs that do not want to: ``lag_seconds``,
    ``stopped``, the names of the tables that require action, and ``action_required``.
    """
    document = cast("dict[str, object]", _plain(status))
    return {
        "format": FORMAT,
        **document,
        "source": _source_document(document["source"]),
        "lag_seconds": status.lag_seconds,
        "stopped": [each.table for each in status.stopped],
        "action_required": status.action_required,
    }


def _source_document(source: object) -> object:
    """With the facts of the source's health among its own fields."""
    if not isinstance(source, dict):
        return source
    health = source.pop("health") or {"details": {}, "lines": [], "summary": ""}
    # Known to scripts, also as null.
    return {**source, "slot": None, **health.pop("details"), **health}


def redact_status(status: PipelineStatus, redactor: Redactor) -> PipelineStatus:
    """The same without a secret in any of its texts; names are texts too."""
    # A table's name is in each of its commits, and a text costs its length each time.
    return cast("PipelineStatus", _redacted(status, cache(redactor.redact)))


def status_from_json(document: object) -> PipelineStatus:
    """Read what ``status_to_json`` wrote; raises ValueError on what is no status."""
    known = _record(document)
    if known.get("format") != FORMAT:
        raise ValueError("this is no status, or one of a form that this release cannot read")
    return PipelineStatus(
        pipeline=_text(known.get("pipeline")),
        version=_text(known.get("version")),
        at=_time(known.get("at")),
        started_at=_optional(_time, known.get("started_at")),
        is_live=_truth(known.get("is_live")),
        roles=_many(_text, known.get("roles")),
        source=_optional(_source, known.get("source")),
        tables=_many(_table, known.get("tables")),
        commits=_many(_commit, known.get("commits")),
        errors=_named(_whole, known.get("errors")),
        samples=_many(_sample, known.get("samples")),
    )


def _plain(value: object) -> object:
    match value:
        case Enum():
            return value.value
        case datetime():
            return value.isoformat()
        case tuple():
            return [_plain(each) for each in value]
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case _ if is_dataclass(value):
            return {
                each.name: _member(each.name, getattr(value, each.name)) for each in fields(value)
            }
        case _:
            return value


def _member(name: str, value: object) -> object:
    # It has 63 bits, and many readers of JSON keep 53 of a number.
    return str(value) if name == "snapshot_id" and value is not None else _plain(value)


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


def _table(value: object) -> TableStatus:
    known = _record(value)
    return TableStatus(
        table=_text(known.get("table")),
        phase=Phase(_text(known.get("phase"))),
        since=_time(known.get("since")),
        changelog=_optional(_text, known.get("changelog")),
        mirror=_optional(_text, known.get("mirror")),
        lag_seconds=_optional(_number, known.get("lag_seconds")),
        lag_bytes=_optional(_whole, known.get("lag_bytes")),
        is_first_load=_truth(known.get("is_first_load", False)),
        mirror_rows=_optional(_whole, known.get("mirror_rows")),
        changelog_rows=_optional(_whole, known.get("changelog_rows")),
        captured=_named(_whole, known.get("captured")),
        merged=_named(_whole, known.get("merged")),
        copy=_optional(_copy, known.get("copy")),
        index=_optional(_index, known.get("index")),
        commits=_many(_commit, known.get("commits")),
        next_run=_optional(_time, known.get("next_run")),
        trouble=_optional(_trouble, known.get("trouble")),
    )


def _source(value: object) -> SourceStatus:
    known = _record(value)
    return SourceStatus(
        kind=_text(known.get("kind")),
        lag_seconds=_optional(_number, known.get("lag_seconds")),
        lag_bytes=_optional(_whole, known.get("lag_bytes")),
        health=_health(known),
        unknown_since=_optional(_time, known.get("unknown_since")),
        is_paused=_truth(known.get("is_paused", False)),
        pending_commits=_whole(known.get("pending_commits", 0)),
        next_run=_optional(_time, known.get("next_run")),
        trouble=_optional(_trouble, known.get("trouble")),
        standby=_optional(_text, known.get("standby")),
    )


def _health(source: Mapping[str, object]) -> HealthFacts | None:
    """Every object among the fields that is none of the status itself is a detail."""
    details = {
        name: _named(_fact, value)
        for name, value in source.items()
        if name not in _SOURCE_FIELDS and isinstance(value, Mapping)
    }
    lines = _many(_health_line, source.get("lines"))
    if not details and not lines:
        return None
    summary = _text(source.get("summary", ""))
    return HealthFacts(details=details, lines=lines, summary=summary)


def _health_line(value: object) -> HealthLine:
    known = _record(value)
    return HealthLine(
        label=_text(known.get("label")),
        text=_text(known.get("text")),
        note=_text(known.get("note", "")),
        is_well=_optional(_truth, known.get("is_well")),
    )


def _fact(value: object) -> Fact:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise _unreadable("a text or a number", value)


def _commit(value: object) -> CommitStatus:
    known = _record(value)
    return CommitStatus(
        at=_time(known.get("at")),
        table=_text(known.get("table")),
        role=_text(known.get("role")),
        lake_table=_text(known.get("lake_table")),
        snapshot_id=_optional(_snapshot, known.get("snapshot_id")),
        rows=_whole(known.get("rows")),
        seconds=_optional(_number, known.get("seconds")),
        phases=_named(_number, known.get("phases")),
    )


def _trouble(value: object) -> ProblemStatus:
    known = _record(value)
    return ProblemStatus(
        code=_optional(_text, known.get("code")),
        reason=_text(known.get("reason")),
        remedy=_text(known.get("remedy")),
        since=_time(known.get("since")),
        retry_at=_optional(_time, known.get("retry_at")),
    )


def _copy(value: object) -> CopyStatus:
    known = _record(value)
    return CopyStatus(
        rows=_whole(known.get("rows")),
        bytes_read=_whole(known.get("bytes_read")),
        bytes_total=_whole(known.get("bytes_total")),
        fraction=_number(known.get("fraction")),
        remaining_seconds=_optional(_number, known.get("remaining_seconds")),
    )


def _index(value: object) -> IndexStatus:
    known = _record(value)
    return IndexStatus(
        entries=_whole(known.get("entries")),
        bytes=_whole(known.get("bytes")),
        repairs=_whole(known.get("repairs")),
    )


def _sample(value: object) -> Sample:
    known = _record(value)
    return Sample(
        at=_time(known.get("at")),
        lag_seconds=_optional(_number, known.get("lag_seconds")),
        changes_per_second=_number(known.get("changes_per_second")),
    )


def _record(value: object) -> Mapping[str, object]:
    if isinstance(value, Mapping):
        return value
    raise _unreadable("an object", value)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise _unreadable("a text", value)


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _unreadable("an integer", value)


def _snapshot(value: object) -> int:
    # Text; a number from processes of older releases.
    return int(value) if isinstance(value, str) else _whole(value)


def _number(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise _unreadable("a number", value)


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _unreadable("true or false", value)


def _time(value: object) -> datetime:
    found = datetime.fromisoformat(_text(value))
    if found.tzinfo is None:
        raise _unreadable("a time with its zone", value)
    return found


def _optional(read: Callable[[object], _T], value: object) -> _T | None:
    return None if value is None else read(value)


def _many(read: Callable[[object], _T], value: object) -> tuple[_T, ...]:
    if value is None:
        return ()
    if isinstance(value, list):
        return tuple(read(each) for each in value)
    raise _unreadable("a list", value)


def _named(read: Callable[[object], _T], value: object) -> Mapping[str, _T]:
    if value is None:
        return {}
    return {_text(name): read(each) for name, each in _record(value).items()}


def _unreadable(wanted: str, found: object) -> ValueError:
    return ValueError(f"a status has {wanted} where {type(found).__name__} was found")
