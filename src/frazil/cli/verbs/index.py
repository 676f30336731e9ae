"""The verbs under ``index``: show, check and rebuild the key index of a mirror."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from frazil.cli.exit_codes import ExitCode
from frazil.cli.output import OutputFormat, write_json, write_table
from frazil.cli.results.facts import to_json, to_rows
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import open_session
from frazil.merge.index_operations import load_index_facts, rebuild_index, verify_index
from frazil.pipeline.tables.merge_settings import check_merges, load_merges

if TYPE_CHECKING:
    from collections.abc import Callable

    from frazil.cli.invocation import Invocation

HEADER = ("FACT", "VALUE")

_T = TypeVar("_T")


def show_index(table: str, invocation: Invocation) -> None:
    """Print what the index of a mirror is made of; changes nothing."""
    facts = _run_operation(load_index_facts, table, invocation)
    _print(facts, invocation)


def check_index(table: str, invocation: Invocation) -> ExitCode:
    """Compare the index with the rows of its mirror; a difference is an exit status of its own."""
    verdict = _run_operation(verify_index, table, invocation)
    _print(verdict, invocation)
    return ExitCode.DONE if verdict.is_sound else ExitCode.DIFFERENCE


def renew_index(table: str, invocation: Invocation) -> None:
    """Build the index from the rows of its mirror and commit it; the rows stay as they are."""
    repair = _run_operation(rebuild_index, table, invocation)
    _print(repair, invocation)


def _run_operation(operation: Callable[..., _T], table: str, invocation: Invocation) -> _T:
    """The result of an operation on the index of this mirror."""
    config = invocation.load_quietly()
    check_merges(config, [table])
    with open_session(config) as session:
        lake = Lake(session, config.catalog.name)
        (settings,) = load_merges(lake, config, [table]).values()
        return operation(session, lake, settings)


def _print(facts: object, invocation: Invocation) -> None:
    redact = invocation.redactor.redact
    if invocation.output is OutputFormat.JSON:
        write_json(invocation.redactor.scrub(to_json(facts)))
    else:
        write_table([(name, redact(text)) for name, text in to_rows(facts)], header=HEADER)
