"""A merge whose tasks run on separate executors, one of which dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import cluster_merge
from tests.support.mirrored import files_catalog, write_document

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]


def test_a_merge_of_many_tasks_on_separate_executors_survives_the_loss_of_one(
    tmp_path: Path,
) -> None:
    document = write_document(tmp_path, files_catalog(tmp_path), "local-cluster[2,1,1024]")
    finished = subprocess.run(
        [sys.executable, Path(cluster_merge.__file__), document, tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    # The process itself has compared every row and every entry of the index.
    assert finished.returncode == 0, finished.stderr
    report = json.loads(finished.stdout)
    assert (report["executors"], report["tasks"]) == (2, 4)
    first, second, third = report["merges"]
    assert (first["counts"], first["files"]) == ({"insert": 400}, 8)
    assert second["counts"] == {"insert": 40, "update": 160, "delete": 40, "none": 10}
    assert (second["files"], second["repairs"]) == (4, [])
    assert third["repairs"] == ["missing"]
    # The file of the task that died is there as well, and nobody names it.
    assert report["written"] == 8 + 4 + 1 + 1
