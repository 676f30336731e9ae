"""Partitions of a source in the status: captured offsets, lag and holder, for all who read it."""

from __future__ import annotations

from datetime import UTC, datetime

from frazil.cli.verbs.status.lines import partition_rows, source_line
from frazil.pipeline.status.json_form import status_from_json, status_to_json
from frazil.pipeline.status.values import PipelineStatus, SourceStatus
from frazil.pipeline.status.wording import health_lines
from frazil.sources.health import HealthFacts, HealthLine, PartitionHealth

FIRST = PartitionHealth(partition="orders/0", newest=120, offset=100, holder="a")
SECOND = PartitionHealth(partition="orders/1", newest=500, offset=50, holder="b")
UNKNOWN = PartitionHealth(partition="orders/2", newest=7)


def status_of(*partitions: PartitionHealth) -> PipelineStatus:
    source = SourceStatus(kind="any", health=HealthFacts(partitions=partitions), leases_held=1)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return PipelineStatus(
        pipeline="shop", version="1", at=now, started_at=None, is_live=True, source=source
    )


def test_what_this_process_has_captured_counts_more_than_what_was_published() -> None:
    facts = HealthFacts(partitions=(FIRST, SECOND, UNKNOWN))
    assert facts.lag_records is None
    known = facts.captured_to({"orders/0": 120, "orders/2": 4})
    assert [each.offset for each in known.partitions] == [120, 50, 4]
    assert [each.lag for each in known.partitions] == [0, 450, 3]
    assert known.lag_records == 453
    # One log, and not partitions.
    assert facts.captured_to(7) is facts


def test_json_has_every_partition_with_its_lag_and_is_read_back() -> None:
    status = status_of(FIRST, UNKNOWN)
    document = status_to_json(status)
    assert isinstance(document["source"], dict)
    assert document["source"]["partitions"] == [
        {"partition": "orders/0", "newest": 120, "offset": 100, "holder": "a", "lag": 20},
        {"partition": "orders/2", "newest": 7, "offset": None, "holder": None, "lag": None},
    ]
    assert document["source"]["leases_held"] == 1
    assert status_from_json(document) == status


def test_the_terminal_shows_partitions_and_who_is_furthest_behind_first() -> None:
    status = status_of(FIRST, SECOND, UNKNOWN)
    assert [row[0] for row in partition_rows(status)] == ["orders/1", "orders/0", "orders/2"]
    assert partition_rows(status)[0] == ("orders/1", "50", "500", "450", "b")
    assert source_line(status_of(FIRST, SECOND)) == (
        "source any  2 partitions of 2 workers, 470 records behind"
    )


def test_many_partitions_are_summed_up_for_people() -> None:
    many = [
        PartitionHealth(partition=f"t/{each}", newest=each, offset=0, holder="a")
        for each in range(50)
    ]
    assert partition_rows(status_of(*many))[-1] == ("and 30 more", "", "", "", "")
    said = HealthLine(label="State", text="fine")
    lines = health_lines(HealthFacts(lines=(said,), partitions=tuple(many)))
    assert [each.label for each in lines] == ["State", "Partitions", "Furthest behind"]
    assert lines[1].text == "50 partitions of 1 worker, 1,225 records behind"
    assert lines[2].text == "t/49"
    few = health_lines(HealthFacts(partitions=(FIRST,)))
    assert [(each.label, each.text) for each in few] == [("orders/0", "100")]
    assert few[0].note == "of 120, 20 records behind, held by a"
