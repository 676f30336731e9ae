"""Dead letters are read again: those that are rows now are appended once, then removed.

Two tables cannot change in one commit. The append leaves the ids of its letters in a property of
the table, and the next replay first removes those letters: a process may end between the two
commits, and several may replay at a time. A letter is only replayed when its table has passed it:
one that is still to be read would come twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from frazil.changelog.table import replayed_letters
from frazil.clients.iceberg.commit.retrying import RetryPolicy, repeat_on_conflict
from frazil.clients.iceberg.write.task_writer import TaskWriter
from frazil.errors import ConfigError, SourceReplacedError
from frazil.hooks import SystemClock, SystemRandomness
from frazil.ingest.captured_table import CapturedTable
from frazil.model.command import command
from frazil.model.marker import MarkerRole
from frazil.model.records.rejected_record import RejectedRecord
from frazil.sources.protocol import TablePart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.iceberg.table import TableVersion
    from frazil.clients.iceberg.write.data_file import WrittenFile
    from frazil.hooks import Clock, Randomness
    from frazil.ingest.captured_table import Prepared
    from frazil.ingest.settings import Captures
    from frazil.ledger.dead_letters import DeadLetterTable
    from frazil.model.marker import Marker
    from frazil.model.records.dead_letter import DeadLetter
    from frazil.model.source_table import SourceTable
    from frazil.sources.protocol import TableRows
    from frazil.sources.replaying import RecordReplayer

_BATCH_BYTES = 8
# Bounds of one append: its ids are a property of the table, and the driver holds its payloads.
_MOST_LETTERS = 1000
_MOST_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What became of letters, by id; ``waiting`` are those that the ingest has still to pass.

    ``pending`` are those whose records the next batch of the ingest reads again.
    """

    appended: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Read:
    """Letters of one table as they are now."""

    good: dict[str, TableRows] = field(default_factory=dict)
    bad: dict[str, RejectedRecord] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)


class LetterReplay:
    """Replays dead letters of one source; lives on the driver."""

    def __init__(
        self,
        lake: Lake,
        letters: DeadLetterTable,
        replayer: RecordReplayer,
        *,
        pipeline: str,
        captures: Captures,
        retry: RetryPolicy | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self._lake = lake
        self._letters = letters
        self._replayer = replayer
        self._pipeline = pipeline
        self._captures = captures
        self._retry = retry or RetryPolicy()
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()

    def replay(self, letters: Sequence[DeadLetter]) -> ReplayReport:
        """Read them again, append rows and remove their letters; a table at a time.

        Those that are still rejected stay, with one more attempt. Raises SourceReplacedError for
        letters of another source, and ConfigError for a table that the source has not any more,
        before anything is changed.
        """
        by_table: dict[str, list[DeadLetter]] = {}
        for each in letters:
            by_table.setdefault(each.table, []).append(each)
        self._check(letters, by_table)
        parts = [
            repeat_on_conflict(
                partial(self._replay, name, piece),
                self._retry,
                clock=self._clock,
                randomness=self._randomness,
            )
            for name, of_table in by_table.items()
            for piece in _pieces(of_table)
        ]
        return ReplayReport(
            appended=tuple(each for part in parts for each in part.appended),
            rejected=tuple(each for part in parts for each in part.rejected),
            waiting=tuple(each for part in parts for each in part.waiting),
        )

    def _check(self, letters: Sequence[DeadLetter], tables: Mapping[str, object]) -> None:
        foreign = [each.id for each in letters if each.source != self._replayer.identity]
        if foreign:
            message = f"{len(foreign)} dead letters are of another source, {foreign[0]} among them."
            raise SourceReplacedError(message, next_step="replay or drop them by their ids")
        for name in tables:
            if not self._replayer.has(name):
                message = "the source does not capture it any more."
                drop = command("dlq", "drop", "--all", "--table", name)
                step = f"capture it again, or {drop}"
                raise ConfigError(message, table=name, next_step=step)

    def _replay(self, name: str, letters: Sequence[DeadLetter]) -> ReplayReport:
        """One attempt; CommitConflictError when the table moved meanwhile."""
        captured = CapturedTable(
            self._lake,
            self._captures(name),
            pipeline=self._pipeline,
            source=self._replayer.identity,
        )
        ids = [each.id for each in letters]
        version = captured.load_version()
        marker = None if version is None else version.marker(MarkerRole.INGEST)
        if version is None or marker is None:
            return ReplayReport(waiting=tuple(ids))
        before = replayed_letters(version)
        if before:
            # In the table already: only their removal may be missing.
            self._letters.settle(before, pipeline=self._pipeline)
        finished = [each for each in ids if each in before]
        # After the version: whoever replays at the same time moves the table first.
        left = [each for each in letters if each.id not in before]
        # As the columns of the rows that are there are numbered.
        position = captured.load_position()
        table = self._replayer.table(name, "" if position is None else position.shape)
        read = self._read(left, table, marker)
        if read.good:
            self._append(table, captured, version, marker, read)
        self._letters.settle(
            read.good.keys(),
            pipeline=self._pipeline,
            rejected_again=read.bad,
            at=self._clock.now(),
        )
        return ReplayReport(
            appended=(*finished, *read.good),
            rejected=tuple(read.bad),
            waiting=tuple(read.waiting),
        )

    def _read(self, letters: Sequence[DeadLetter], table: SourceTable, marker: Marker) -> _Read:
        found = _Read()
        payloads = self._letters.payloads([each.id for each in letters])
        records: dict[str, RejectedRecord] = {}
        for each in letters:
            # One without a payload was replayed or dropped by another process.
            if each.id in payloads:
                record = each.record(payloads[each.id])
                if self._replayer.has_passed(record, marker.position):
                    records[each.id] = record
                else:
                    found.waiting.append(each.id)
        readings = self._replayer.read(table, tuple(records.values()))
        for letter, reading in zip(records, readings, strict=True):
            if isinstance(reading, RejectedRecord):
                found.bad[letter] = reading
            else:
                found.good[letter] = reading
        return found

    def _append(
        self,
        table: SourceTable,
        captured: CapturedTable,
        version: TableVersion,
        marker: Marker,
        read: _Read,
    ) -> None:
        part = TablePart(table=table, start=marker.position, goal=marker.position)
        prepared = captured.prepare(part)
        captured.append_replayed(
            prepared,
            self._write(prepared, read),
            version=version,
            batch=f"replay-{self._randomness.token(_BATCH_BYTES).hex()}",
            letters=tuple(read.good),
        )

    def _write(self, prepared: Prepared, read: _Read) -> tuple[WrittenFile, ...]:
        target = prepared.target
        writer = TaskWriter(target.target, clock=self._clock, randomness=self._randomness)
        try:
            for each in read.good.values():
                # A record that its settings leave out has no rows.
                if each.rows.num_rows:
                    writer.write(target.layout.lay_out(each.rows))
            return writer.close()
        except BaseException:
            writer.abandon()
            raise


def _pieces(letters: Sequence[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """In their order, as many as one append may have."""
    piece: list[DeadLetter] = []
    size = 0
    for each in letters:
        if piece and (len(piece) >= _MOST_LETTERS or size + each.payload_bytes > _MOST_BYTES):
            yield piece
            piece, size = [], 0
        piece.append(each)
        size += each.payload_bytes
    if piece:
        yield piece
