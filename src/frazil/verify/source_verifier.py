"""Proof that a mirror is its source, also while the source goes on.

The source is read in one snapshot and compared with the mirror by key. While they differ, the
mirror may only be behind, or ahead: one waits until it has passed the snapshot's position. A key
that differs then, and of which the changelog has no later change, differs for good. The
others were changed meanwhile; they alone are read again, on both sides, until they settle.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from frazil.clients.spark.task_errors import running_tasks
from frazil.errors import ForeignChangeError, SourceReplacedError
from frazil.hooks import SystemClock
from frazil.ingest.planning.column_numbers import decode_column_numbers
from frazil.ingest.source_rows import source_rows
from frazil.model.command import command
from frazil.model.humanize import counted
from frazil.model.marker import MarkerRole
from frazil.model.policy import Deletes
from frazil.model.table_facts import COLUMNS_PROPERTY
from frazil.verify.mirror_progress import MirrorProgress, Passage, Patience
from frazil.verify.mirror_verifier import NOTHING_MERGED, Verification, verify_mirror
from frazil.verify.row_comparison import SAMPLES, Differences
from frazil.verify.source_comparison import MOST_MOVING, SourceComparer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.hooks import Clock
    from frazil.ledger.table import Ledger
    from frazil.ledger.table_state import State
    from frazil.merge.planning.settings import MergeSettings
    from frazil.sources.protocol import Batch
    from frazil.sources.row_source import RowSnapshot, RowSource
    from frazil.verify.row_comparison import RangeTotals
    from frazil.verify.source_comparison import MovingKeys, SourceSnapshot

    # Why a table is not captured, by its state in the ledger, and the command that helps.
    ExplainStop = Callable[[str, State | None], tuple[str, str]]

# A key that is changed again in every one of them is changed all the time.
MOST_ROUNDS = 5
# More keys than this are found sooner by reading the entire table than by a long statement.
MOST_ASKED = 1_000
# What ends a mirror that is behind, of everything and of what is captured.
RUN, MERGE = "frazil run --once", "frazil merge --once"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitSettings:
    """How long a mirror may take to pass what the source was read at, if it is advanced.

    ``merge_limit`` is what a merge that runs needs at most; ``merges_run`` says that one does.
    ``on_wait`` is given the mirror that is waited for.
    """

    limit: timedelta
    merge_limit: timedelta
    merges_run: bool = False
    on_wait: Callable[[str], None] = lambda _mirror: None


class SourceVerifier:
    """Compares mirrors with the tables that a pipeline captures; changes nothing anywhere."""

    def __init__(
        self,
        session: SparkSession,
        lake: Lake,
        rows: RowSource,
        ledger: Ledger,
        *,
        wait: WaitSettings,
        explain_stop: ExplainStop,
        clock: Clock | None = None,
    ) -> None:
        self._session = session
        self._lake = lake
        self._rows = rows
        self._ledger = ledger
        self._identities = {each.table: each.identity for each in ledger.table_states()}
        self._wait = wait
        self._explain_stop = explain_stop
        self._clock = clock or SystemClock()

    def verify(
        self, settings: MergeSettings, source: str, *, show_keys: bool = False
    ) -> Verification:
        """Compare one mirror with the table of this name at the source.

        ``show_keys`` lets keys into the result, which are values of rows. Raises what keeps the
        source from being read, and SourceReplacedError when it is not the one that was captured.
        """
        mirror = str(settings.mirror)
        progress = MirrorProgress(
            source=source,
            rows=self._rows,
            ledger=self._ledger,
            changelog=self._lake.open(settings.changelog),
            mirror=self._lake.open(settings.mirror),
        )
        comparing = SourceComparer(
            self._session,
            settings,
            changelog=progress.changelog,
            mirror=progress.mirror,
            show_keys=show_keys,
        )
        proof = _Proof(
            session=self._session,
            merge=settings,
            rows=self._rows,
            explain_stop=self._explain_stop,
            identity=self._identities.get(source),
            progress=progress,
            comparing=comparing,
            patience=Patience(
                clock=self._clock,
                limit=self._wait.limit,
                on_wait=lambda: self._wait.on_wait(mirror),
                merge_limit=self._wait.merge_limit,
                merges_run=self._wait.merges_run,
            ),
            verify_with_changelog=lambda: verify_mirror(
                self._session, self._lake, settings, show_keys=show_keys
            ),
        )
        try:
            with running_tasks(mirror, "comparing the mirror with its source"):
                return proof.run()
        finally:
            comparing.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proof:
    """The comparison of one mirror, from its first read to its verdict."""

    session: SparkSession
    merge: MergeSettings
    rows: RowSource = field(repr=False)
    explain_stop: ExplainStop
    # Of the table at the source, as the ledger has it.
    identity: str | None
    progress: MirrorProgress
    comparing: SourceComparer
    patience: Patience
    verify_with_changelog: Callable[[], Verification]

    def run(self) -> Verification:
        """The verdict."""
        if self.progress.mirror.load_marker(MarkerRole.MERGE) is None:
            return replace(self._blank(), note=NOTHING_MERGED, next_step=MERGE)
        seen, identity = self._read()
        totals = self.comparing.load_totals(seen)
        if not totals.differing:
            return self._verdict(seen, totals, Differences())
        passage = self.progress.wait(seen.position, identity, self.patience)
        totals = self.comparing.load_totals(seen)
        if not totals.differing:
            return self._verdict(seen, totals, Differences())
        if passage is Passage.PASSED:
            return self._settle(seen, totals)
        if passage is Passage.NOT_MERGED:
            return self._judge_as_merged(seen, totals)
        return self._judge_as_captured(seen, totals, passage)

    def _judge_as_merged(self, seen: SourceSnapshot, totals: RangeTotals) -> Verification:
        """The changelog has everything: what it has beyond the mirror may still come, no more."""
        marker = self.progress.mirror.load_marker(MarkerRole.MERGE)
        merged = None if marker is None else int(str(marker.position))
        lasting, moving = self.comparing.judge(seen, totals, merged=merged)
        unmerged = counted(len(self.progress.unmerged()), "snapshot")
        note = f"{unmerged} of the changelog not merged"
        if lasting.ranges:
            return replace(self._verdict(seen, totals, lasting, note), unjudged=moving.count)
        found = self.comparing.load_differences(seen, totals)
        verdict = self._verdict(seen, totals, found, note)
        return replace(verdict, is_behind=True, next_step=MERGE)

    def _judge_as_captured(
        self, seen: SourceSnapshot, totals: RangeTotals, passage: Passage
    ) -> Verification:
        """What the source has since is nowhere else: the mirror is judged by its changelog."""
        reason, step = self._reason(seen, passage)
        try:
            by_changelog = self.verify_with_changelog()
        except ForeignChangeError:
            # The changelog does not have all that the mirror must hold.
            by_changelog = None
        if by_changelog is not None and by_changelog.differs:
            note = f"compared with its changelog, because {reason}"
            again = command("resync", self.progress.source)
            note = "; ".join(filter(None, [note, by_changelog.note]))
            return replace(by_changelog, source=self.progress.source, note=note, next_step=again)
        found = self.comparing.load_differences(seen, totals)
        verdict = self._verdict(seen, totals, found, reason)
        return replace(verdict, is_behind=True, next_step=step)

    def _read(self, only: MovingKeys | None = None) -> tuple[SourceSnapshot, str]:
        """The source now, or only its rows with these keys; and the table's identity there."""
        # Before the snapshot: an epoch that begins later counts as a change of everything.
        marker = self.progress.position()
        name = self.progress.source
        with self.rows.open(clock=self.patience.clock) as opened:
            batch = opened.batch_of(name, () if only is None else _asked(only))
            self._require_same(opened, batch)
            seen = self.comparing.take(
                source_rows(self.session, batch),
                batch.parts[0].table,
                fields=self._fields(),
                position=opened.position,
                epoch=0 if marker is None else marker.epoch,
                only=only,
            )
            batch.check()
            return seen, batch.parts[0].table.identity

    def _fields(self) -> Mapping[int, int]:
        """The changelog's fields by the numbers that columns have at the source."""
        properties = self.progress.changelog.load_state().properties
        known = decode_column_numbers(
            properties.get(COLUMNS_PROPERTY, ""), table=str(self.merge.changelog)
        )
        return {number: each.field for number, each in known.live.items()}

    def _require_same(self, opened: RowSnapshot, batch: Batch) -> None:
        """Refuse a table that is not the one whose changes were captured."""
        name, marker = self.progress.source, self.progress.position()
        is_same = marker is not None and marker.source == opened.identity
        now = batch.parts[0].table.identity
        # What is recorded may be of an earlier release, and say less.
        explain = self.rows.explain_identity_change
        if not is_same or self.identity is None or explain(self.identity, now):
            message = "the table at the source is not the one that was captured."
            step = f"{command('resync', name)}, or point source.dsn at the right server"
            raise SourceReplacedError(message, table=name, next_step=step)

    def _settle(self, first: SourceSnapshot, totals: RangeTotals) -> Verification:
        """Judge what differs, and read what moves again until nothing does."""
        lasting, moving = self.comparing.judge(first, totals)
        rounds = 1
        while moving.count and moving.count <= MOST_MOVING and rounds < MOST_ROUNDS:
            seen, identity = self._read(moving)
            passage = self.progress.wait(seen.position, identity, self.patience)
            if passage is not Passage.PASSED:
                break
            found, moving = self.comparing.judge(seen, None)
            lasting, rounds = _both(lasting, found), rounds + 1
        note = "keys that kept changing are not judged" if moving.count else ""
        verdict = self._verdict(first, totals, lasting, note)
        if moving.count and not verdict.differs:
            again = command("verify", "--table", self.merge.mirror)
            verdict = replace(verdict, next_step=again)
        return replace(verdict, unjudged=moving.count)

    # --- messages ---

    def _blank(self) -> Verification:
        return Verification(
            changelog=self.merge.changelog, mirror=self.merge.mirror, source=self.progress.source
        )

    def _verdict(
        self, seen: SourceSnapshot, totals: RangeTotals, found: Differences, note: str = ""
    ) -> Verification:
        head = self.progress.mirror.load_state().head
        marker = self.progress.mirror.load_marker(MarkerRole.MERGE)
        return replace(
            self._blank(),
            position=self.rows.format(seen.position),
            snapshot_id=None if head is None else head.id,
            through=None if marker is None else int(str(marker.position)),
            rows_expected=totals.expected,
            rows_found=totals.found,
            columns=tuple(each.mirror for each in seen.plan.columns.values()),
            left_out=seen.plan.left_out,
            differing_ranges=len(found.ranges),
            missing=found.missing,
            surplus=found.surplus,
            different=found.different,
            samples=found.samples,
            note="; ".join(filter(None, [*self._notes(seen), note])),
            next_step=command("resync", self.progress.source) if found.ranges else "",
        )

    def _reason(self, seen: SourceSnapshot, passage: Passage) -> tuple[str, str]:
        """Why the mirror is behind, and the command that helps."""
        state = self.progress.state
        if passage is Passage.STOPPED:
            why, step = self.explain_stop(self.progress.source, state)
            return f"the table is not captured: {why}", step or RUN
        marker = self.progress.position()
        source = self.rows.format(seen.position)
        changelog = "no position" if marker is None else marker.position
        unread = "" if self.progress.is_read else ", and no process reads the source"
        return f"the source is at {source}, the changelog at {changelog}{unread}", RUN

    def _notes(self, seen: SourceSnapshot) -> list[str]:
        notes = []
        if seen.plan.ahead:
            notes.append(f"not in the mirror yet: {', '.join(seen.plan.ahead)}")
        if self.merge.deletes is Deletes.IGNORE:
            notes.append("rows that the source deleted stay, and are not compared")
        return notes


def _asked(only: MovingKeys) -> Sequence[Sequence[str]]:
    """The keys to ask the source for; none at all means every row."""
    return only.texts if only.texts is not None and only.count <= MOST_ASKED else ()


def _both(one: Differences, other: Differences) -> Differences:
    return Differences(
        missing=one.missing + other.missing,
        surplus=one.surplus + other.surplus,
        different=one.different + other.different,
        ranges=one.ranges | other.ranges,
        samples=(*one.samples, *other.samples)[:SAMPLES],
    )
