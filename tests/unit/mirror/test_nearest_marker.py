"""Which marker a mirror that was set back may go on from."""

from __future__ import annotations

from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
from frazil.codec.marker_json import encode_marker
from frazil.mirror.table import nearest_marker
from frazil.model.marker import Marker, MarkerRole, SnapshotRef
from frazil.model.table_facts import SnapshotOperation


def merged(position: object) -> dict[str, str]:
    marker = Marker(pipeline="p", source="s", position=position, batch="b", epoch=2, sequence="q")  # type: ignore[arg-type]
    return {MarkerRole.MERGE.property_name: encode_marker(marker)}


def history(*summaries: dict[str, str]) -> list[SnapshotFacts]:
    """Newest first, as tables give it."""
    return [
        SnapshotFacts(100 - age, 99 - age, 10 - age, SnapshotOperation.OVERWRITE, summary)
        for age, summary in enumerate(summaries)
    ]


def test_our_newest_commit_has_the_marker() -> None:
    found = nearest_marker(history({}, merged("12"), merged("11")), MarkerRole.MERGE)
    assert found is not None
    assert (found.position, found.epoch, found.sequence) == ("12", 2, "q")
    assert found.snapshot == SnapshotRef(99, 9)


def test_a_history_without_our_commits_has_no_marker() -> None:
    assert nearest_marker(history({}, {"frazil.ingest": "{}"}), MarkerRole.MERGE) is None
    assert nearest_marker([], MarkerRole.MERGE) is None


def test_an_unreadable_or_partial_marker_is_not_skipped() -> None:
    unreadable = {MarkerRole.MERGE.property_name: '{"version":2}'}
    assert nearest_marker(history(unreadable, merged("11")), MarkerRole.MERGE) is None
    assert nearest_marker(history(merged({"a/0": 4}), merged("11")), MarkerRole.MERGE) is None
