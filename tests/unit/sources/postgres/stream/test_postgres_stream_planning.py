"""Which tables a batch of segments has changes of, to the very position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from frazil.codec.pgoutput.messages import Relation, RelationColumn, ReplicaIdentity
from frazil.model.postgres.lsn import format_lsn
from frazil.sources.postgres.spool_files import SpoolFiles
from frazil.sources.postgres.stream.planner import StreamPlanner
from frazil.sources.postgres.stream.segment import Segment
from frazil.sources.postgres.stream.spool import Taken
from frazil.sources.postgres.tables.description import TableOptions, describe_table
from frazil.sources.protocol import Progress, TableProgress
from tests.support.postgres.views import INT, TEXT, view

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from frazil.sources.postgres.tables.catalog_view import CatalogView
    from frazil.sources.protocol import Batch

NAME = "shop.orders"
OID = 1
RELATION = Relation(
    OID,
    "shop",
    "orders",
    ReplicaIdentity.DEFAULT,
    (RelationColumn("id", INT, -1, is_key=True), RelationColumn("word", TEXT, -1, is_key=False)),
)
KNOWN = describe_table(view(), TableOptions()).table


def load(oids: Collection[int], types: Collection[int]) -> Mapping[str, CatalogView]:
    assert set(oids) == {OID}
    assert set(types) == {INT, TEXT}
    return {NAME: view()}


def segment(final_lsn: int, *, oid: int = OID) -> Segment:
    """One transaction that changes one row."""
    return Segment(
        name=f"{final_lsn:x}",
        size=100,
        messages=4,
        rows=1,
        oids=frozenset({oid}),
        relations=(RELATION,),
        xids=(700,),
        first_final_lsn=final_lsn,
        last_final_lsn=final_lsn,
        end_lsn=final_lsn + 8,
        last_committed_at=0,
    )


def planned(folder: Path, after: int, *segments: Segment, end: int | None = None) -> Batch:
    planner = StreamPlanner(SpoolFiles(str(folder)), lambda _table: TableOptions(), load)
    table = TableProgress(format_lsn(after), KNOWN.identity, KNOWN.shape)
    progress = Progress(acknowledged=format_lsn(after), tables={NAME: table})
    taken = Taken(segments, segments[-1].end_lsn if end is None else end)
    batch, rest = planner.plan(taken, progress)
    assert rest.segments == ()
    assert batch.failures == ()
    return batch


@pytest.mark.parametrize("after", [0x10, 0x1F, 0x20])
def test_a_transaction_at_or_after_the_position_is_read(tmp_path: Path, after: int) -> None:
    # One that commits exactly there is not in the snapshot that the position is of.
    batch = planned(tmp_path, after, segment(0x20))
    (part,) = batch.parts
    assert (part.start, part.goal) == (format_lsn(after), "0/28")
    assert len(batch.splits) == 1


@pytest.mark.parametrize("after", [0x21, 0x28, 0x100])
def test_a_transaction_before_the_position_is_in_already(tmp_path: Path, after: int) -> None:
    batch = planned(tmp_path, after, segment(0x20))
    assert (batch.parts, batch.splits, batch.end) == ((), (), "0/28")


def test_a_table_that_is_not_touched_is_left_where_it_is(tmp_path: Path) -> None:
    assert planned(tmp_path, 0x10, segment(0x20, oid=OID + 1)).parts == ()


def test_a_batch_leads_to_where_the_source_is_by_then(tmp_path: Path) -> None:
    batch = planned(tmp_path, 0x10, segment(0x20), segment(0x30), end=0x99)
    assert batch.end == "0/99"
    assert [each.goal for each in batch.parts] == ["0/99"]
    assert len(batch.splits) == 2
