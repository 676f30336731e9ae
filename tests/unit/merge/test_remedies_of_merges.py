"""Every error that a merge can raise has a remedy that a test carries out, or a reason for none."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import grimp
import pytest

from frazil import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.fault("N32")

ROOT = Path(__file__).parents[3]

# Not imported above: they bring readers and Spark, which no other test of a fast run needs.
EXECUTING = ("tests.spark.commands.test_remedies", "tests.spark.commands.test_remedies_captured")
# Carried out by tests of other files.
ELSEWHERE: dict[type[errors.FrazilError], str] = {
    errors.ConfigError: "tests/spark/merge/test_merge_changelogs.py::"
    "test_tables_of_format_version_1_are_read_and_mirrors_of_it_upgraded_first",
}
# Nothing is to be done at the table: why, and the test in which it is in order afterwards.
WITHOUT: dict[type[errors.FrazilError], tuple[str, str]] = {
    errors.CatalogError: (
        "the catalog is away or busy, and the work is done again when it answers",
        "tests/spark/faults/test_commit_faults.py::"
        "test_a_commit_that_did_not_land_is_recognised_and_repeated",
    ),
    errors.CommitConflictError: (
        "the work is planned again by itself",
        "tests/spark/faults/test_commit_faults.py::test_what_was_planned_on_another_head_is_planned_again",
    ),
    errors.CommitUnknownError: (
        "the next start looks for the commit",
        "tests/spark/faults/test_commit_faults.py::"
        "test_without_a_reply_to_the_check_the_outcome_is_unknown",
    ),
    errors.DamagedIndexError: (
        "the index is rebuilt by itself",
        "tests/spark/merge/test_merge_index_trust.py::"
        "test_a_run_that_cannot_be_used_has_the_index_rebuilt_within_the_same_merge",
    ),
    errors.StaleIndexError: (
        "the index is repaired by itself",
        "tests/spark/merge/test_merge_index_trust.py::"
        "test_deletes_that_the_table_does_not_have_are_refused_by_the_commit_and_repaired",
    ),
    errors.FencedError: (
        "another process does this work",
        "tests/spark/faults/test_commit_faults.py::test_a_rival_that_did_the_work_fences_the_slower_one",
    ),
    errors.PermissionError: (
        "credentials are renewed outside of frazil, and the work is done again",
        "tests/spark/faults/test_store_faults.py::"
        "test_a_fault_that_stays_stops_the_run_by_name_and_leaves_the_tables_whole",
    ),
    errors.WriteFailedError: (
        "the work is done again",
        "tests/spark/faults/test_store_faults.py::test_a_fault_that_passes_costs_at_most_a_run",
    ),
    errors.RuntimeMissingError: (
        "the machine or the session lacks something, and no table was touched",
        "tests/unit/merge/test_merge_library.py::"
        "test_a_session_of_spark_connect_is_refused_with_what_to_do",
    ),
    errors.SourceReplacedError: (
        "a merge refuses another changelog with TableReplacedError before it would commit",
        "tests/spark/commands/test_remedies.py::"
        "test_the_command_in_the_message_heals_a_mirror_of_a_pipeline_without_a_source",
    ),
    errors.UnrepresentableValueError: (
        "a mirror has the types of its changelog, so what does not fit is refused at its capture",
        "tests/unit/merge/planning/test_schema_mapping.py::",
    ),
    errors.DefectError: (
        "a defect has no remedy but to be reported",
        "tests/unit/test_errors.py::",
    ),
}


def raised_by_merges() -> set[type[errors.FrazilError]]:
    """The errors that are made anywhere in what a merge imports."""
    leaves = {each.__name__: each for each in errors.leaves()}
    merge = "frazil.merge.library"
    graph = grimp.build_graph("frazil")
    found = set()
    for module in {merge, *graph.find_upstream_modules(merge)} - {"frazil.errors"}:
        path = ROOT / "src" / module.replace(".", "/")
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        found |= {leaves[name] for name in _called(file) if name in leaves}
    return found


def _called(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                yield name


def test_every_error_of_a_merge_has_a_remedy_that_is_carried_out_or_a_reason_for_none() -> None:
    executed: set[type[errors.FrazilError]] = set()
    for name in EXECUTING:
        executed |= import_module(name).EXECUTED
    known = executed | ELSEWHERE.keys() | WITHOUT.keys()
    raised = raised_by_merges()
    assert {each.__name__ for each in raised - known} == set()
    # And none is listed that merges do not raise any more.
    assert {each.__name__ for each in known - raised} == set()
    assert not WITHOUT.keys() & (executed | ELSEWHERE.keys())


@pytest.mark.parametrize("test", [*ELSEWHERE.values(), *(test for _, test in WITHOUT.values())])
def test_the_tests_that_are_named_exist(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text() if name else (ROOT / file).exists()
