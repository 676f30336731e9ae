"""Ids of snapshots survive readers of JSON that keep 53 bits of a number, as jq does."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from frazil.cli.results.facts import to_json
from frazil.cli.results.merge_results import report_json
from frazil.cli.verbs.position.reports import MarkerReport, MarkerTable, TableRole
from frazil.cli.verbs.position.reports import report_json as position_json
from frazil.merge.index_operations import IndexFacts
from frazil.merge.report import MergeCommit, MergeReport
from frazil.model.marker import Marker, MarkerRole, SnapshotRef
from frazil.model.table_name import TableName
from frazil.pipeline.status.json_form import status_from_json, status_to_json
from frazil.telemetry.redaction import Redactor
from frazil.verify.mirror_verifier import Verification
from tests.support.status.statuses import running

LARGE = 2**63 - 25
TABLE = TableName("lake", ("public",), "users")
INDEX = IndexFacts(
    state="usable", detail="", head="h", snapshot=LARGE, key=("id",), hash="xxh64", data_files=1,
    entries=1, young_entries=0, runs=(), bytes=1, unnamed_files=0, unnamed_bytes=0,
)  # fmt: skip
MARKER = Marker(
    pipeline="p", source="s", position=str(LARGE), batch="b", snapshot=SnapshotRef(LARGE, 3)
)
COMMIT = MergeCommit(after=LARGE, through=LARGE, snapshot_id=LARGE, rows_read=1, seconds=1.0)
STATUS = replace(
    running(), commits=tuple(replace(each, snapshot_id=LARGE) for each in running().commits)
)
REPORT = MarkerReport(
    MarkerTable(TableRole.MIRROR, TABLE, MarkerRole.MERGE), MarkerRole.MERGE, MARKER
)

DOCUMENTS = {
    "status": status_to_json(STATUS),
    "index show": to_json(INDEX),
    "verify": to_json(
        Verification(changelog=TABLE, mirror=TABLE, snapshot_id=LARGE, through=LARGE)
    ),
    "position show": position_json(REPORT, Redactor()),
    "merge": report_json(MergeReport(changelog=TABLE, mirror=TABLE, commits=(COMMIT,))),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_ids_are_text(name: str) -> None:
    written = json.dumps(DOCUMENTS[name])
    assert f'"{LARGE}"' in written
    # What such a reader makes of it, for which every number is a double.
    read = json.dumps(json.loads(written, parse_int=float))
    assert read.count(f'"{LARGE}"') == written.count(str(LARGE))


def test_a_status_is_read_back_exactly_and_so_is_one_of_an_older_release() -> None:
    document = json.loads(json.dumps(status_to_json(STATUS)))
    assert status_from_json(document) == STATUS
    for commit in document["commits"]:
        commit["snapshot_id"] = int(commit["snapshot_id"])
    assert status_from_json(document) == STATUS
