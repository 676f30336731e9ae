"""What an ingest did to each table, as lines of text and as JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from frazil.cli.output import OutputFormat, write_json, write_table
from frazil.ledger.rows import position_text
from frazil.model.change import Operation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.ingest.report import BatchReport
    from frazil.ledger.table_state import TableState
    from frazil.telemetry.redaction import Redactor

HEADER = (
    "TABLE", "STATE", *(each.value for each in Operation), "FILES", "POSITION", "PROBLEM",
)  # fmt: skip


class IngestTally:
    """Adds up the reports of batches."""

    def __init__(self) -> None:
        self._operations: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._files: Counter[str] = Counter()
        self._positions: dict[str, str] = {}

    def record_report(self, report: BatchReport) -> None:
        """Add a batch."""
        for table in report.tables:
            self._operations[table.table].update(table.operations)
            self._files[table.table] += len(table.file_sizes)
            self._positions[table.table] = position_text(table.goal)

    def print(
        self,
        table_states: Mapping[str, TableState],
        output: OutputFormat,
        redactor: Redactor,
    ) -> None:
        """Every table that is captured, also those that got nothing."""
        if output is OutputFormat.JSON:
            write_json(
                [self._as_json(name, each, redactor) for name, each in sorted(table_states.items())]
            )
            return
        rows = [self._row(name, each, redactor) for name, each in sorted(table_states.items())]
        write_table(rows, header=HEADER)

    def _row(self, name: str, entry: TableState, redactor: Redactor) -> tuple[str, ...]:
        counts = self._operations[name]
        return (
            name,
            entry.state.word,
            *(str(counts[each.value]) for each in Operation),
            str(self._files[name]),
            self._positions.get(name, "-"),
            redactor.redact(_problem(entry)),
        )

    def _as_json(self, name: str, entry: TableState, redactor: Redactor) -> dict[str, object]:
        return {
            "table": name,
            "state": entry.state.word,
            "rows": dict(self._operations[name]),
            "files": self._files[name],
            "position": self._positions.get(name),
            "problem": redactor.redact(_problem(entry)) or None,
        }


def _problem(entry: TableState) -> str:
    text = str(entry.state)
    return "" if text == entry.state.word else text
