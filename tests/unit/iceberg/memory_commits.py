"""Commits to a table in memory: how they are made, and what is asked of the table then."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from frazil.clients.iceberg.commit.strict_commit import FileChanges, StrictCommit
from frazil.codec.marker_json import decode_marker
from frazil.model.marker import Marker, MarkerMove, MarkerRole
from tests.unit.iceberg.memory_table import NAME, MemoryTable

if TYPE_CHECKING:
    from frazil import errors

INGEST, MERGE = MarkerRole.INGEST, MarkerRole.MERGE


def goal(position: int, *, batch: str | None = None, source: str = "s") -> Marker:
    name = batch or f"batch-{position}"
    return Marker(pipeline="p", source=source, position=str(position), batch=name)


def move(start: int | None, to: int, role: MarkerRole = INGEST, **facts: str) -> MarkerMove:
    return MarkerMove(role, None if start is None else str(start), goal(to, **facts))


def file(path: str, **facts: str) -> str:
    return json.dumps({"path": path, **facts})


def appended(start: int | None, to: int, role: MarkerRole = INGEST, **facts: Any) -> StrictCommit:
    changes = FileChanges(added=(file(f"data-{to}"),))
    return StrictCommit(move=move(start, to, role), changes=changes, **facts)


def marker(table: MemoryTable, role: MarkerRole = INGEST) -> Marker:
    return decode_marker(table.version.texts[role.property_name])


def at(table: MemoryTable) -> Marker | None:
    """The marker if it is valid."""
    return table.committer.marker(table.version, INGEST)


def refuse(
    table: MemoryTable, commit: StrictCommit, error: type[errors.FrazilError], words: str = "."
) -> errors.FrazilError:
    """The commit is refused, and nothing of it is there."""
    before = table.version
    with pytest.raises(error, match=words) as refused:
        table.committer.commit(commit)
    assert table.version is before
    assert refused.value.table == NAME
    return refused.value


def begun() -> MemoryTable:
    """A table with one commit of ours."""
    made = MemoryTable()
    made.committer.commit(appended(None, 1))
    return made
