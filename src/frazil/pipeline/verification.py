"""From the configuration to a comparison of tables with their source."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from frazil.hooks import SystemClock
from frazil.ledger.table import Ledger
from frazil.pipeline.configured_source import configured_source
from frazil.pipeline.status.problems import problem_of_state
from frazil.pipeline.tables.captured_mirrors import dead_letters_name, ledger_name
from frazil.verify.record_verifier import RecordVerifier
from frazil.verify.source_verifier import SourceVerifier, WaitSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.config import Config
    from frazil.hooks import Clock
    from frazil.ledger.table_state import State

# Beyond the waits that the configuration names: for the work itself.
_WORK = timedelta(seconds=30)


def build_source_verifier(
    session: SparkSession,
    lake: Lake,
    config: Config,
    *,
    wait: timedelta | None = None,
    merges_run: bool = False,
    on_wait: Callable[[str], None] = lambda _mirror: None,
    clock: Clock | None = None,
) -> SourceVerifier | None:
    """The verifier; None where the source gives no rows to compare with.

    Without ``wait``, a mirror may take as long as a pipeline needs that runs well.
    """
    kind = configured_source(config)
    rows = kind.rows()
    if rows is None:
        return None
    limit = config.ingest.interval + config.merge.interval + kind.policy.quiet + _WORK
    return SourceVerifier(
        session,
        lake,
        rows,
        Ledger.open(lake, ledger_name(config)),
        wait=WaitSettings(
            limit=limit if wait is None else wait,
            merge_limit=config.merge.interval + _WORK,
            # An operator who gives a wait knows of a process that merges.
            merges_run=merges_run or wait is not None,
            on_wait=on_wait,
        ),
        explain_stop=_explain_stop,
        clock=clock,
    )


def build_record_verifier(
    session: SparkSession, lake: Lake, config: Config
) -> RecordVerifier | None:
    """The verifier of tables of records; None where the source has none."""
    records = None if config.source is None else configured_source(config).records()
    if records is None:
        return None
    return RecordVerifier(session, lake, records, dead_letters_name(config))


def _explain_stop(table: str, state: State | None) -> tuple[str, str]:
    if state is None:
        return "removed", ""
    problem = problem_of_state(table, state, since=SystemClock().now())
    return (state.word, "") if problem is None else (problem.reason, problem.remedy)
