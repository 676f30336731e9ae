"""The last merge compared with Iceberg's ``MERGE INTO``: the same changes into the same files."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from frazil.errors import ServiceError
from frazil.hooks import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.spark.session import Session
    from frazil.hooks import Clock
    from frazil.model.table_name import TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class LastMerge:
    """One merge of ours: which part of the changelog it took, and how long that lasted.

    ``after`` and ``through`` are snapshots of the changelog, ``before`` is one of the mirror.
    No key comes twice among its changes, and none was changed.
    """

    changelog: TableName
    mirror: TableName
    key: tuple[str, ...]
    operation: str
    after: int
    through: int
    before: int
    changes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeContest:
    """Seconds for the same changes into a table of so many rows."""

    mirror: TableName
    changes: int
    rows: int
    ours: float
    merge_into: float


def compare_merges(
    session: Session, lake: Lake, last: LastMerge, *, clock: Clock | None = None
) -> MergeContest:
    """Do the last merge again with ``MERGE INTO``, on copies of the mirror as it was before.

    The first copy is for warming up: our merge was not the process's first either. Raises
    ServiceError when the two did not come to the same rows.
    """
    watch = clock or SystemClock()
    columns = tuple(each.name for each in lake.open(last.mirror).load_schema().fields)
    seconds = 0.0
    for turn in ("warm_up", "measured"):
        with _copied(session, lake, last, f"{last.mirror.table}_{turn}") as copied:
            session.sql(f"refresh table {last.changelog.quoted}")
            statement = _statement(last, copied, columns)
            began = watch.monotonic()
            session.sql(statement)
            seconds = watch.monotonic() - began
            ours, theirs = (_digest(session, each, columns) for each in (last.mirror, copied))
        if ours != theirs:
            message = f"MERGE INTO came to other rows than the merge of {last.mirror}."
            raise ServiceError(message, next_step="report it, this is a defect in frazil")
    return MergeContest(
        mirror=last.mirror,
        changes=last.changes,
        rows=ours[0],
        ours=last.seconds,
        merge_into=seconds,
    )


@contextmanager
def _copied(session: Session, lake: Lake, last: LastMerge, name: str) -> Iterator[TableName]:
    """The mirror before the merge under another name, with the same files and another folder.

    What is written to the copy lies elsewhere, so that readers that search for the mirror's newest
    metadata by name never find the copy's.
    """
    mirror = last.mirror
    original = Path(re.sub(r"^file:/*", "/", lake.open(mirror).load_metadata_location()))
    metadata = json.loads(original.read_text(encoding="utf-8"))
    folder = original.parents[2] / f"{name}-{uuid4().hex[:8]}"
    metadata["location"] = f"file://{folder}"
    # The versions before are the mirror's, and not the copy's to clear away.
    metadata["metadata-log"] = []
    copied = folder / "metadata" / f"00000-{uuid4()}.metadata.json"
    copied.parent.mkdir(parents=True)
    copied.write_text(json.dumps(metadata), encoding="utf-8")
    other = replace(mirror, table=name)
    try:
        # With its catalog, else Spark resolves the namespace as a catalog.
        call, name = f"call {mirror.catalog}.system", f"{mirror.catalog}.{other}"
        session.sql(f"{call}.register_table(table => '{name}', metadata_file => 'file://{copied}')")
        session.sql(f"{call}.rollback_to_snapshot(table => '{name}', snapshot_id => {last.before})")
        session.sql(
            f"alter table {other.quoted} set tblproperties ('write.merge.mode' = 'merge-on-read')"
        )
        yield other
    finally:
        # Its own folder only: the oldest of its files are the mirror's.
        session.sql(f"drop table if exists {other.quoted}")
        shutil.rmtree(folder, ignore_errors=True)


def _statement(last: LastMerge, copied: TableName, columns: tuple[str, ...]) -> str:
    # Not a view: Spark fails to plan a MERGE from one over a range.
    changes = (
        f"(select * from {last.changelog.quoted} with "  # noqa: S608 - names of tables and columns
        f"(`start-snapshot-id` = '{last.after}', `end-snapshot-id` = '{last.through}'))"
    )
    same = " and ".join(f"t.{name} = s.{name}" for name in last.key)
    others = ", ".join(f"t.{name} = s.{name}" for name in columns if name not in last.key)
    names = ", ".join(columns)
    values = ", ".join(f"s.{name}" for name in columns)
    return (
        f"merge into {copied.quoted} t using {changes} s on {same} "  # noqa: S608
        f"when matched and s.{last.operation} = 'DELETE' then delete "
        f"when matched then update set {others} "
        f"when not matched and s.{last.operation} <> 'DELETE' "
        f"then insert ({names}) values ({values})"
    )


def _digest(session: Session, table: TableName, columns: tuple[str, ...]) -> tuple[int, str]:
    """Rows, and a sum over hashes of all their columns."""
    session.sql(f"refresh table {table.quoted}")
    ((count, total),) = session.sql(
        f"select count(*), sum(cast(xxhash64({', '.join(columns)}) as decimal(38, 0))) "  # noqa: S608
        f"from {table.quoted}"
    ).collect()
    return count, str(total)
