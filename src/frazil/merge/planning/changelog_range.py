"""Chooses the snapshots of a changelog that the next merge reads; pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from frazil import errors
from frazil.merge.planning.changelog_columns import find_column
from frazil.model.command import command
from frazil.model.policy import Deletes
from frazil.model.schema.layout_expressions import parse_partition_term, parse_sort_term
from frazil.model.table_facts import SnapshotOperation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from frazil.merge.planning.settings import MergeSettings
    from frazil.model.marker import Marker
    from frazil.model.schema.types import Schema
    from frazil.model.table_facts import ChangelogFacts, SnapshotLine

# A replace is a compaction: the same rows in other files.
_HARMLESS = frozenset({SnapshotOperation.APPEND, SnapshotOperation.REPLACE})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogRange:
    """The snapshots after one up to another, or everything as of one.

    ``schema`` is the one that the rows are read with. ``snapshots`` counts those of the range,
    ``remaining`` those that are left for later. ``restarts`` says that the range holds a copy of
    the table, so that everything merged before is replaced.
    """

    after: int | None
    through: int
    schema: Schema
    rows: int
    bytes: int
    snapshots: int
    remaining: int
    restarts: bool = False


def choose_restart(
    changelog: ChangelogFacts, marker: Marker | None, settings: MergeSettings
) -> ChangelogRange | None:
    """The range that begins with the newest copy of the table that was not merged yet.

    What the mirror holds, and what the changelog was before, is of no concern to it: neither has
    to be in order. None when there is no such copy, or none that is complete.
    """
    lines = changelog.snapshots
    starts = _restarts(changelog, marker)
    if not starts:
        return None
    rows = list(accumulate(_appended_rows(each) for each in lines[starts[-1] :]))
    ends = [index - starts[-1] for index in _complete(lines) if index >= starts[-1]]
    end = _newest_within(ends, rows, settings.max_rows)
    if end is None:
        return None
    taken = lines[starts[-1] : starts[-1] + end + 1]
    for each in taken:
        _require_harmless(each, taken[0], changelog, settings)
    after = taken[0].parent
    return ChangelogRange(
        after=after,
        through=taken[-1].id,
        schema=changelog.schema if after is not None else changelog.schema_at(taken[-1]),
        rows=rows[end],
        bytes=sum(each.added_bytes for each in taken if _appended_rows(each)),
        snapshots=len(taken),
        remaining=len(lines) - starts[-1] - len(taken),
        restarts=True,
    )


def choose_everything(
    changelog: ChangelogFacts, marker: Marker | None, settings: MergeSettings
) -> ChangelogRange | None:
    """All rows of the changelog, for a mirror that is rebuilt; None if it has none.

    Rows that were corrected or removed are read as they are now. The range does not end before
    what was merged, nor before the newest copy: readers are not set back, and what the copy
    repairs is repaired by this one range.
    """
    merged = None if marker is None or marker.source != changelog.uuid else str(marker.position)
    least = max(
        (
            index
            for index, each in enumerate(changelog.snapshots)
            if each.restart is not None or str(each.id) == merged
        ),
        default=0,
    )
    chosen = _choose_first(changelog, settings, accepts_changes=True, least=least)
    return None if chosen is None else replace(chosen, restarts=True)


def _restarts(changelog: ChangelogFacts, marker: Marker | None) -> list[int]:
    """The copies of the table that the mirror has not merged, as indices of snapshots."""
    lines = changelog.snapshots
    copies = [(index, each.restart) for index, each in enumerate(lines) if each.restart is not None]
    if marker is None or marker.source != changelog.uuid:
        return [index for index, _ in copies]
    merged = [index for index, each in enumerate(lines) if str(each.id) == marker.position]
    if merged:
        return [index for index, _ in copies if index > merged[0]]
    # The snapshot merged last is expired, or the changelog was rolled back behind it. The epoch
    # separates a later copy from one that was merged. Without a sequence no change was merged, or
    # the marker was set by hand: every copy counts as later, which is safe, because it has the
    # complete table.
    known = "" if marker.sequence is None else marker.sequence
    comparable = not known or "/" in known
    return [index for index, epoch in copies if comparable and known < epoch]


def _appended_rows(snapshot: SnapshotLine) -> int:
    return snapshot.added_rows if snapshot.operation is SnapshotOperation.APPEND else 0


def choose_range(
    changelog: ChangelogFacts, marker: Marker | None, settings: MergeSettings
) -> ChangelogRange | None:
    """The next snapshots, up to about ``max_rows``; None when there is nothing to merge.

    Without a marker everything up to a snapshot is read, because older ones may be expired. Raises
    TableReplacedError, RolledBackError or PositionLostError when the marker does not fit the
    changelog, ForeignChangeError when a snapshot did anything but append or compact.
    """
    if marker is not None:
        return _choose_next(changelog, _position(changelog, marker, settings), settings)
    return _choose_first(changelog, settings)


def _choose_next(
    changelog: ChangelogFacts, after: int, settings: MergeSettings
) -> ChangelogRange | None:
    pending = _pending(changelog, after, settings)
    appended = [each if each.operation is SnapshotOperation.APPEND else None for each in pending]
    rows = list(accumulate(0 if each is None else each.added_rows for each in appended))
    end = _newest_within(list(_complete(pending)), rows, settings.max_rows)
    if end is None:
        return None
    taken = pending[: end + 1]
    for each in taken:
        _require_harmless(each, taken[0], changelog, settings)
    return ChangelogRange(
        after=after,
        through=taken[-1].id,
        schema=changelog.schema,
        rows=rows[end],
        bytes=sum(each.added_bytes for each in appended[: end + 1] if each is not None),
        snapshots=len(taken),
        remaining=len(pending) - len(taken),
    )


def _choose_first(
    changelog: ChangelogFacts,
    settings: MergeSettings,
    *,
    accepts_changes: bool = False,
    least: int = 0,
) -> ChangelogRange | None:
    lines = changelog.snapshots
    _require_complete(changelog, settings)
    # Do not end before the last of these: the next range would contain a removal of rows that may
    # not have been merged, or an overwrite, which no range may contain.
    bounds = [
        index
        for index, each in enumerate(lines)
        if (each.operation is SnapshotOperation.DELETE and each.removes)
        or (each.operation is SnapshotOperation.OVERWRITE and accepts_changes)
    ]
    complete = [index for index in _complete(lines) if index >= max([least, *bounds])]
    needed = _needed_ids(changelog.schema, settings)
    readable = [index for index in complete if needed <= _ids(changelog.schema_at(lines[index]))]
    totals = [each.total_rows for each in lines]
    end = _newest_within(readable or complete, totals, settings.max_rows)
    if end is None:
        return None
    for each in () if accepts_changes else lines[: end + 1]:
        _require_no_overwrite(each, changelog, settings)
    through = lines[end]
    return ChangelogRange(
        after=None,
        through=through.id,
        schema=changelog.schema_at(through),
        rows=through.total_rows,
        bytes=through.total_bytes,
        snapshots=end + 1,
        remaining=len(lines) - end - 1,
    )


def _require_complete(changelog: ChangelogFacts, settings: MergeSettings) -> None:
    """Refuse to make a mirror of what retention has left, but for a copy that is newer.

    Where deletes are not applied, rows that the source has not any more are in no copy.
    """
    trimmed = changelog.trimmed
    copies = (each.sequence for each in changelog.snapshots if each.restart is not None)
    is_copied = settings.deletes is Deletes.APPLY and any(each > (trimmed or 0) for each in copies)
    if trimmed is None or is_copied:
        return
    message = "changes that were merged long ago are removed: the rest does not make a mirror."
    next_step = f"{command('resync', settings.mirror)}, with the source that the changes came from"
    raise errors.PositionLostError(message, table=str(changelog.name), next_step=next_step)


def _newest_within(ends: Sequence[int], sizes: Sequence[int], limit: int) -> int | None:
    """The newest end whose size is within the limit, else the oldest: a snapshot is not split."""
    within = [each for each in ends if sizes[each] <= limit]
    if within:
        return within[-1]
    return ends[0] if ends else None


def _complete(lines: Sequence[SnapshotLine]) -> Iterator[int]:
    """The snapshots at which the source's state is complete.

    Compaction and removal of files do not end a copy that is in progress.
    """
    is_complete = True
    for index, each in enumerate(lines):
        if each.incomplete or each.operation is SnapshotOperation.APPEND:
            is_complete = not each.incomplete
        if is_complete:
            yield index


def _position(changelog: ChangelogFacts, marker: Marker, settings: MergeSettings) -> int:
    if marker.source != changelog.uuid:
        message = f"its UUID is {changelog.uuid}, and the mirror was merged from {marker.source}."
        raise errors.TableReplacedError(
            message, table=str(changelog.name), next_step=command("resync", settings.mirror)
        )
    position = marker.position
    if not isinstance(position, str) or not position.isdecimal():
        raise errors.MarkerLostError(
            "its marker does not name a snapshot of the changelog.",
            table=str(settings.mirror),
            next_step=command("position", "set", settings.mirror, "--role", "merge"),
        )
    return int(position)


def _pending(
    changelog: ChangelogFacts, after: int, settings: MergeSettings
) -> tuple[SnapshotLine, ...]:
    """The snapshots after the one merged last, all of them."""
    lines = changelog.snapshots
    ids = [each.id for each in lines]
    if after in ids:
        return lines[ids.index(after) + 1 :]
    oldest = lines[0] if lines else None
    if oldest is not None and oldest.parent == after:
        # Expired up to there and no further: nothing is missing in between.
        return lines
    table = str(changelog.name)
    if oldest is None or oldest.parent is None:
        message = f"snapshot {after}, merged last, is not in the history of its current state."
        next_step = command("resync", settings.mirror)
        raise errors.RolledBackError(message, table=table, next_step=next_step)
    message = f"snapshot {after}, merged last, is expired: the history begins at {oldest.id}."
    raise errors.PositionLostError(
        message, table=table, next_step=command("resync", settings.mirror)
    )


def _require_harmless(
    snapshot: SnapshotLine,
    first: SnapshotLine,
    changelog: ChangelogFacts,
    settings: MergeSettings,
) -> None:
    """Refuse what an incremental read would silently skip: everything except appends."""
    if snapshot.operation in _HARMLESS:
        return
    removed = changelog.retention_of.get(snapshot.id)
    is_retention = removed is not None and removed < first.sequence
    if snapshot.operation is SnapshotOperation.DELETE and is_retention:
        return
    message = f"snapshot {snapshot.id} is an {snapshot.operation}, not an append."
    if snapshot.operation is SnapshotOperation.DELETE:
        message = f"snapshot {snapshot.id} removed changes that may not have been merged."
    raise errors.ForeignChangeError(
        message, table=str(changelog.name), next_step=command("resync", settings.mirror)
    )


def _require_no_overwrite(
    snapshot: SnapshotLine, changelog: ChangelogFacts, settings: MergeSettings
) -> None:
    if snapshot.operation is not SnapshotOperation.OVERWRITE or not snapshot.removes:
        return
    message = f"snapshot {snapshot.id} replaced changes of the changelog by others."
    raise errors.ForeignChangeError(
        message,
        table=str(changelog.name),
        next_step=(
            f"roll it back, or, if its rows are right as they are, expire its snapshots up to "
            f"that one and merge into {settings.mirror} again"
        ),
    )


def _needed_ids(schema: Schema, settings: MergeSettings) -> set[int]:
    """The columns that every merge with these settings needs."""
    names = [*settings.key, settings.sequence, settings.operation, *_layout_columns(settings)]
    found = [find_column(schema.fields, name.partition(".")[0]) for name in names]
    return {each.id for each in found if each is not None}


def _layout_columns(settings: MergeSettings) -> list[str]:
    try:
        partitions = [parse_partition_term(text).column for text in settings.partition_by]
        return partitions + [parse_sort_term(text).by.column for text in settings.sort_by]
    except ValueError as error:
        message = f"partition_by and sort_by take {error}."
        raise errors.ConfigError(message, table=str(settings.mirror)) from error


def _ids(schema: Schema) -> set[int]:
    return {each.id for each in schema.fields}
