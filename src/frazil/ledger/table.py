"""The ledger: a row per batch and table, the state of each table, and what may be acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name every reader of PySpark knows

from frazil.clients.iceberg.commit.retrying import RetryPolicy, repeat_on_conflict
from frazil.clients.iceberg.commit.strict_commit import CommitOutcome, Receipt, StrictCommit
from frazil.clients.iceberg.lake import NEWEST_FORMAT, TableDefinition
from frazil.clients.java_errors import translated
from frazil.errors import FencedError
from frazil.hooks import SystemClock, SystemRandomness
from frazil.ledger.rows import SCHEMA, STATE_COLUMNS, RowKind, plan_rows, state_from
from frazil.ledger.table_state import Removed
from frazil.ledger.writing import write_rows
from frazil.model.marker import (
    Allowed,
    AlreadyDone,
    Marker,
    MarkerMove,
    MarkerRole,
    Override,
    judge_move,
)
from frazil.model.table_facts import UPKEEP_KEY, SnapshotOperation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts, TableMetadata
    from frazil.clients.iceberg.table import LakeTable
    from frazil.hooks import Clock, Randomness
    from frazil.ledger.rows import LedgerEntry
    from frazil.ledger.table_state import TableState
    from frazil.model.marker import Position, SnapshotRef
    from frazil.model.schema.types import Schema
    from frazil.model.table_name import TableName

    # From the marker that was found to how it moves.
    _Decision = Callable[[TableMetadata, Marker | None], MarkerMove | Override]

# The marker's source while notes were written and no source was ever read.
_NO_SOURCE = ""
# How many states of tables a commit wrote; in the summary of its snapshot.
STATES_KEY = "frazil.states"
# The commit number from which on there is a row for the state of every table.
STATES_FROM_PROPERTY = "frazil.states-from"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DatedState:
    """The state of a table, and since when it has it."""

    state: TableState
    since: datetime


class Ledger:
    """The ledger of one pipeline; lives on the driver."""

    def __init__(
        self,
        table: LakeTable,
        *,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        self.table = table
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()
        self._retry = retry or RetryPolicy()

    @classmethod
    def open(cls, lake: Lake, name: TableName) -> Ledger:
        """A ledger that exists; TableNotFoundError otherwise."""
        return cls(lake.open(name))

    @classmethod
    def ensure(cls, lake: Lake, name: TableName, *, format_version: int = NEWEST_FORMAT) -> Ledger:
        """The ledger as it is, or a new and empty one."""
        definition = TableDefinition(schema=SCHEMA, format_version=format_version)
        return cls(lake.ensure_table(name, definition))

    def acknowledged(self) -> Marker | None:
        """The position the source may be acknowledged to; None before the first batch."""
        found = self.table.load_marker(MarkerRole.INGEST)
        return None if found is None or found.source == _NO_SOURCE else found

    def record(
        self,
        entries: Sequence[LedgerEntry],
        *,
        start: Position | None,
        goal: Marker,
        table_states: Sequence[TableState] = (),
        head: SnapshotRef | None = None,
        states_since: SnapshotRef | None = None,
    ) -> Receipt:
        """Record a batch after all its tables have committed, in one commit.

        ``goal`` is what the source may then be acknowledged to, ``table_states`` are those that
        changed. Repeating the same batch is a no-op, and the receipt says so. Raises FencedError
        when the ledger is not at ``start``, has another head than this one, or got states of tables
        after ``states_since``.
        """

        def move(state: TableMetadata, found: Marker | None) -> MarkerMove | Override:
            self._require_states(states_since)
            if head is not None and not self.only_upkeep_since(head):
                message = "another process wrote in the ledger meanwhile."
                raise FencedError(message, table=str(self.table.name))
            if not start and found is not None and found.source == _NO_SOURCE:
                # Nothing was read yet: the marker that is there only carries states of tables.
                return Override(MarkerRole.INGEST, _seen(state), goal)
            return MarkerMove(MarkerRole.INGEST, start, goal)

        return self._write(move, entries, table_states, batch=goal.batch)

    def restart_at(self, goal: Marker) -> Receipt:
        """Put the position elsewhere, in another source perhaps: what it was means nothing now.

        By partition, what another process has begun in the same source stays.
        """

        def replace_all(state: TableMetadata, found: Marker | None) -> MarkerMove | Override:
            if isinstance(goal.position, Mapping) and found and found.source == goal.source:
                return MarkerMove(MarkerRole.INGEST, {}, goal)
            return Override(MarkerRole.INGEST, _seen(state), goal)

        return self._write(replace_all, (), (), batch=goal.batch)

    def note(
        self,
        entries: Sequence[LedgerEntry],
        *,
        pipeline: str,
        batch: str,
        table_states: Sequence[TableState] = (),
        position: Position | None = None,
        states_since: SnapshotRef | None = None,
    ) -> Receipt:
        """Record what moves no source, a merge or an operator's act, and leave the position alone.

        May run during an ingest of another process. Not idempotent: each call writes again. Raises
        FencedError when the ledger is not at ``position``, or got states after ``states_since``.
        """
        blank = Marker(pipeline=pipeline, source=_NO_SOURCE, position="", batch=batch)

        def stay(state: TableMetadata, found: Marker | None) -> MarkerMove | Override:
            self._require_states(states_since)
            if position is not None and (found is None or found.position != position):
                message = "another process moved the ledger meanwhile."
                raise FencedError(message, table=str(self.table.name))
            same = blank if found is None else replace(found, snapshot=None)
            return Override(MarkerRole.INGEST, _seen(state), same)

        return self._write(stay, entries, table_states, batch=batch)

    def table_states(self) -> tuple[TableState, ...]:
        """The newest state of every captured table, by name.

        A table that is not among them is new, whatever marker it has.
        """
        return tuple(each.state for each in self.dated_states())

    def has_new_states(self, since: SnapshotRef) -> bool:
        """Whether a commit after this one wrote states, or may have; without reading rows."""
        for each in self.table.iter_ancestry():
            if each.id == since.id:
                return False
            if each.summary.get(STATES_KEY) != "0":
                break
        return True

    def only_upkeep_since(self, since: SnapshotRef, until: SnapshotRef | None = None) -> bool:
        """Whether nothing but upkeep was committed after this commit, and before the other one."""
        is_below = until is None
        for each in self.table.iter_ancestry():
            if each.id == since.id:
                return is_below
            if is_below and not _is_upkeep(each):
                return False
            is_below = is_below or (until is not None and each.id == until.id)
        return False

    def _require_states(self, since: SnapshotRef | None) -> None:
        if since is not None and self.has_new_states(since):
            message = "another process wrote states of tables meanwhile."
            raise FencedError(message, table=str(self.table.name))

    def dated_states(self) -> tuple[DatedState, ...]:
        """The same, with the time since when."""
        state = self.table.load_state()
        if state.head is None:
            return ()
        with translated(str(self.table.name), "reading the ledger"):
            # Files of before are not opened: their numbers are all lower.
            states = self.table.read(state.head.id).where(
                F.col("commit_number") >= F.lit(states_from(state.properties))
            )
            rows = newest_states(states).collect()
        found = (
            DatedState(
                state_from({name: row[name] for name in STATE_COLUMNS}),
                _EPOCH + timedelta(microseconds=row["since"]),
            )
            for row in rows
        )
        captured = [each for each in found if not isinstance(each.state.state, Removed)]
        return tuple(sorted(captured, key=lambda each: each.state.table))

    def _write(
        self,
        decide: _Decision,
        entries: Sequence[LedgerEntry],
        table_states: Sequence[TableState],
        *,
        batch: str,
    ) -> Receipt:
        """Write and commit, again on the new head when another writer was faster."""
        return repeat_on_conflict(
            lambda: self._attempt(decide, entries, table_states, batch=batch),
            self._retry,
            clock=self._clock,
            randomness=self._randomness,
        )

    def _attempt(
        self,
        decide: _Decision,
        entries: Sequence[LedgerEntry],
        table_states: Sequence[TableState],
        *,
        batch: str,
    ) -> Receipt:
        version = self.table.load_version()
        state, found = version.state, version.marker(MarkerRole.INGEST)
        move = decide(state, found)
        # Judged before anything is written: what will not land leaves no file behind.
        verdict = judge_move(found, move) if isinstance(move, MarkerMove) else Allowed(move.goal)
        if isinstance(verdict, AlreadyDone):
            return Receipt(CommitOutcome.ALREADY_DONE, verdict.marker)
        commit = StrictCommit(move=move, summary={STATES_KEY: str(len(table_states))})
        if isinstance(verdict, Allowed):
            # Every commit here lands on the head it was planned on, so numbers are in its order.
            number = 1 if state.head is None else state.head.sequence + 1
            now = self._clock.now()
            rows = plan_rows(entries, table_states, commit_number=number, batch=batch, now=now)
            wanted = _with_new_columns(version.schema, state.last_column_id)
            changes = write_rows(
                version.write_target(wanted), rows, clock=self._clock, randomness=self._randomness
            )
            commit = replace(
                commit,
                changes=changes,
                planned_on=None if state.head is None else state.head.id,
                schema=wanted,
                schema_before=None if wanted is None else wanted.schema_id,
            )
        return self.table.commit(commit)


def states_from(properties: Mapping[str, str]) -> int:
    """The commit number from which on the state of every table is found."""
    text = properties.get(STATES_FROM_PROPERTY, "")
    return int(text) if text.isdecimal() else 0


def _is_upkeep(snapshot: SnapshotFacts) -> bool:
    """Whether a commit left the ledger saying the same."""
    is_ours = UPKEEP_KEY in snapshot.summary
    return is_ours or snapshot.operation is SnapshotOperation.REPLACE


def newest_states(ledger: DataFrame) -> DataFrame:
    """The last row about each table's state, with its time in microseconds.

    As a number, because Spark gives times without their zone.
    """
    since = F.unix_micros("committed_at").alias("since")
    # A ledger of an earlier release gets the newer columns with its next row.
    columns = [
        F.col(name) if name in ledger.columns else F.lit(None).cast("string").alias(name)
        for name in STATE_COLUMNS
    ]
    newest = F.max_by(F.struct(*columns, since), "commit_number").alias("newest")
    # Whatever a newer release calls them: a state that is not known is refused, not skipped.
    states = ledger.where(F.col("kind") != F.lit(RowKind.BATCH.value))
    return states.groupBy("table_name").agg(newest).select("newest.*")


def _with_new_columns(schema: Schema, last_column_id: int) -> Schema | None:
    """The schema with the columns that its release did not have; None if it has all of them."""
    names = {column.name for column in schema.columns()}
    missing = [field for field in SCHEMA.fields if field.name not in names]
    # Never the id of a column that was dropped: files may still have it.
    numbered = enumerate(missing, last_column_id + 1)
    added = (replace(field, id=number) for number, field in numbered)
    return replace(schema, fields=(*schema.fields, *added)) if missing else None


def _seen(state: TableMetadata) -> str | None:
    return state.properties.get(MarkerRole.INGEST.property_name)
