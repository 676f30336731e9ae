"""``check`` of a spool that executors of other machines cannot read."""

from __future__ import annotations

import pytest

from frazil.sources.findings import Severity
from frazil.sources.postgres.checks.source_check import spool_problem

CLUSTER = "spark://master.example.com:7077"


@pytest.mark.parametrize("folder", ["/var/lib/frazil/spool", "file:///var/lib/frazil/spool"])
@pytest.mark.parametrize("master", [CLUSTER, "yarn", "k8s://https://kubernetes.example.com"])
def test_a_local_folder_is_a_warning_on_a_cluster(folder: str, master: str) -> None:
    problem = spool_problem(folder, master)
    assert problem is not None
    assert problem.severity is Severity.WARNS
    assert folder in problem.sentence
    assert "s3://" in problem.sentence


@pytest.mark.parametrize("master", ["local[*]", "local", "local-cluster[2,1,1024]"])
def test_a_local_folder_is_fine_where_executors_are_local(master: str) -> None:
    assert spool_problem("/var/lib/frazil/spool", master) is None


def test_a_location_in_a_store_is_fine_everywhere() -> None:
    assert spool_problem("s3://bucket/spool", CLUSTER) is None
