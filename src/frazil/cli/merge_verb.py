"""The verb ``merge``: mirrors brought up to date, once or on their interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.cli.merge_results import HEADER, result_json, result_row
from frazil.cli.output import OutputFormat, write_json, write_table
from frazil.cli.role_process import run_role
from frazil.errors import CatalogError, CommitUnknownError, StorageError
from frazil.pipeline.assemble import build_loop, check_merges
from frazil.pipeline.recording import Recorder
from frazil.web.readiness import NotReady, Ready

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from frazil.cli.exit_codes import ExitCode
    from frazil.cli.invocation import Invocation
    from frazil.cli.role_process import Stage
    from frazil.config import Config
    from frazil.pipeline.loop import MergeLoop
    from frazil.pipeline.observing import Observed
    from frazil.pipeline.table_status import TableStatus
    from frazil.telemetry.redaction import Redactor
    from frazil.web.readiness import State

_NO_ANSWER = (CatalogError, StorageError, CommitUnknownError)


def run_merges(
    document: Path | None,
    tables: Sequence[str],
    output: OutputFormat,
    invocation: Invocation,
    *,
    once: bool,
) -> ExitCode:
    """Merge until told to stop; with ``once``, until nothing is left, and print what was done."""
    loaded = invocation.load(document)
    check_merges(loaded.config, tables)
    role = _MergeRole(loaded.config, tables, output, invocation.redactor)
    return run_role(role, loaded, invocation.redactor, once=once)


class _MergeRole:
    def __init__(
        self, config: Config, tables: Sequence[str], output: OutputFormat, redactor: Redactor
    ) -> None:
        self._config = config
        self._tables = tables
        self._output = output
        self._redactor = redactor
        self._recorder: Recorder
        self._loop: MergeLoop

    def observe(self, observed: Observed) -> Recorder:
        self._recorder = Recorder(observed.metrics, observed.reporting, names=observed.names)
        return self._recorder

    def build(self, stage: Stage) -> MergeLoop:
        self._loop = build_loop(
            stage.session,
            self._config,
            self._tables,
            recorder=self._recorder,
            tracing=stage.observed.tracing,
            stop=stage.stop,
        )
        stage.readiness.add("catalog", lambda: catalog_state(self._loop.statuses))
        return self._loop

    def print_results(self) -> None:
        _print_results(self._loop.statuses, self._output, self._redactor)


def catalog_state(statuses: Sequence[TableStatus]) -> State:
    """Whether the catalog answers, as far as the last run of each table tells."""
    ended = [each for each in statuses if each.report is not None or each.error is not None]
    if not ended:
        return NotReady("no merge has ended yet")
    silent = [each for each in ended if isinstance(each.error, _NO_ANSWER)]
    if len(silent) < len(ended):
        return Ready()
    return NotReady(f"{silent[0].code}: {silent[0].reason}")


def _print_results(
    statuses: Sequence[TableStatus], output: OutputFormat, redactor: Redactor
) -> None:
    if output is OutputFormat.JSON:
        write_json([result_json(each, redactor) for each in statuses])
    else:
        write_table([result_row(each, redactor) for each in statuses], header=HEADER)
