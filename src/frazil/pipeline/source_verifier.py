"""Proof that a mirror is its source, also while the source goes on.

The source is read in one snapshot and compared with the mirror by key. While they differ, the
mirror may only be behind, or ahead: one waits until it has passed the snapshot's position. A key
that differs then, and of which the changelog does not tell a later change, differs for good. The
others were changed meanwhile; they alone are read again, on both sides, until they settle.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from frazil.clients.spark.task_errors import running_tasks
from frazil.config import PostgresSection
from frazil.errors import ForeignChangeError, SourceReplacedError
from frazil.hooks import SystemClock, SystemRandomness
from frazil.ingest.planning.column_numbers import decode_column_numbers
from frazil.ingest.source_rows import source_rows
from frazil.ledger.table import Ledger
from frazil.model.command import command
from frazil.model.marker import MarkerRole
from frazil.model.policy import Deletes
from frazil.model.postgres.lsn import format_lsn
from frazil.model.table_facts import COLUMNS_PROPERTY
from frazil.pipeline.configured_source import configured_source
from frazil.pipeline.status.problems import trouble_of_state
from frazil.pipeline.status.wording import counted
from frazil.pipeline.tables.captured_mirrors import ledger_name
from frazil.sources.postgres.copy.round import CopyRound
from frazil.sources.postgres.copy.snapshot import copy_slot_name
from frazil.sources.postgres.kind import PostgresKind
from frazil.sources.postgres.slot.continuity import source_identity
from frazil.sources.postgres.tables.identity import identity_differences
from frazil.verify.mirror_progress import MirrorProgress, Passage, Patience
from frazil.verify.mirror_verifier import NOTHING_MERGED, Verification, verify_mirror
from frazil.verify.row_comparison import SAMPLES, Differences
from frazil.verify.source_comparison import MOST_MOVING, SourceComparing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.lake import Lake
    from frazil.config import Config
    from frazil.hooks import Clock
    from frazil.merge.planning.settings import MergeSettings
    from frazil.sources.postgres.settings import PostgresSettings
    from frazil.sources.protocol import Batch
    from frazil.verify.row_comparison import RangeTotals
    from frazil.verify.source_comparison import MovingKeys, SourceSnapshot

# A key that is changed again in every one of them is changed all the time.
MOST_ROUNDS = 5
# More keys than this are found sooner by reading the whole table than by a long statement.
MOST_ASKED = 1_000
# Beyond the waits that the document names: for the work itself.
_WORK = timedelta(seconds=30)
# What ends a mirror that is behind, of everything and of what is captured.
RUN, MERGE = "frazil run --once", "frazil merge --once"


class SourceVerifier:
    """Compares mirrors with the tables that a pipeline captures; changes nothing anywhere.

    ``wait`` is for how long a mirror may take to pass what the source was read at, if somebody
    advances it: ``merges_run`` says that somebody does. ``on_wait`` is told which mirror somebody
    waits for.
    """

    def __init__(
        self,
        session: SparkSession,
        lake: Lake,
        config: Config,
        *,
        wait: timedelta | None = None,
        merges_run: bool = False,
        on_wait: Callable[[str], None] = lambda _mirror: None,
        clock: Clock | None = None,
    ) -> None:
        self._session = session
        self._lake = lake
        kind = configured_source(config)
        if not isinstance(kind, PostgresKind):
            raise TypeError(kind)
        self._settings = kind.settings
        self._ledger = Ledger.open(lake, ledger_name(config))
        self._identities = {each.table: each.identity for each in self._ledger.table_states()}
        self._wait = longest_wait(config) if wait is None else wait
        self._merge_limit = config.merge.interval + _WORK
        # Who gives a wait knows of somebody who merges.
        self._merges_run = merges_run or wait is not None
        self._on_wait = on_wait
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
            settings=self._settings,
            ledger=self._ledger,
            changelog=self._lake.open(settings.changelog),
            mirror=self._lake.open(settings.mirror),
        )
        comparing = SourceComparing(
            self._session,
            settings,
            changelog=progress.changelog,
            mirror=progress.mirror,
            show_keys=show_keys,
        )
        proof = _Proof(
            session=self._session,
            merge=settings,
            source=self._settings,
            identity=self._identities.get(source),
            progress=progress,
            comparing=comparing,
            patience=Patience(
                clock=self._clock,
                limit=self._wait,
                on_wait=lambda: self._on_wait(mirror),
                merge_limit=self._merge_limit,
                merges_run=self._merges_run,
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


def longest_wait(config: Config) -> timedelta:
    """What a pipeline that is well may need to pass a position, also one of a quiet source."""
    waits = config.ingest.interval + config.merge.interval + _WORK
    source = config.source
    return waits + source.heartbeat if isinstance(source, PostgresSection) else waits


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proof:
    """The comparison of one mirror, from its first look to its verdict."""

    session: SparkSession
    merge: MergeSettings
    source: PostgresSettings = field(repr=False)
    # Of the table at the source, as the ledger has it.
    identity: str | None
    progress: MirrorProgress
    comparing: SourceComparing
    patience: Patience
    verify_with_changelog: Callable[[], Verification]

    def run(self) -> Verification:
        """The verdict."""
        if self.progress.mirror.load_marker(MarkerRole.MERGE) is None:
            return replace(self._blank(), note=NOTHING_MERGED, next_step=MERGE)
        seen, table_oid = self._read()
        totals = self.comparing.load_totals(seen)
        if not totals.differing:
            return self._verdict(seen, totals, Differences())
        passage = self.progress.wait(seen.position, table_oid, self.patience)
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
        count = len(self.progress.unmerged())
        note = f"{counted(count, 'snapshot')} of the changelog not merged"
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
            beside = self.verify_with_changelog()
        except ForeignChangeError:
            # The changelog does not tell all that the mirror must hold.
            beside = None
        if beside is not None and beside.differs:
            note = f"compared with its changelog, because {reason}"
            again = command("resync", self.progress.source)
            note = "; ".join(filter(None, [note, beside.note]))
            return replace(beside, source=self.progress.source, note=note, next_step=again)
        found = self.comparing.load_differences(seen, totals)
        verdict = self._verdict(seen, totals, found, reason)
        return replace(verdict, is_behind=True, next_step=step)

    def _read(self, only: MovingKeys | None = None) -> tuple[SourceSnapshot, int]:
        """The source now, or only its rows with these keys; and the table's number there."""
        # Before the snapshot: an epoch that begins later counts as a change of everything.
        marker = self.progress.position()
        name = self.progress.source
        slot = copy_slot_name(self.source.slot, SystemRandomness())
        with CopyRound(self.source, slot=slot, clock=self.patience.clock) as opened:
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
            return seen, opened.table_oid(name)

    def _fields(self) -> Mapping[int, int]:
        """The changelog's fields by the numbers that columns have at the source."""
        properties = self.progress.changelog.load_state().properties
        known = decode_column_numbers(
            properties.get(COLUMNS_PROPERTY, ""), table=str(self.merge.changelog)
        )
        return {number: each.field for number, each in known.live.items()}

    def _require_same(self, opened: CopyRound, batch: Batch) -> None:
        """Refuse a table that is not the one whose changes were captured."""
        name, marker = self.progress.source, self.progress.position()
        counted_in = source_identity(opened.server, self.source.slot)
        is_same = marker is not None and marker.source == counted_in
        now = batch.parts[0].table.identity
        # What is recorded may be of an earlier release, and say less.
        if not is_same or self.identity is None or identity_differences(self.identity, now):
            message = "the table at the source is not the one that was captured."
            step = f"{command('resync', name)}, or point source.dsn at the right server"
            raise SourceReplacedError(message, table=name, next_step=step)

    def _settle(self, first: SourceSnapshot, totals: RangeTotals) -> Verification:
        """Judge what differs, and look at what moves again until nothing does."""
        lasting, moving = self.comparing.judge(first, totals)
        rounds = 1
        while moving.count and moving.count <= MOST_MOVING and rounds < MOST_ROUNDS:
            seen, table_oid = self._read(moving)
            passage = self.progress.wait(seen.position, table_oid, self.patience)
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

    # --- words ---

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
            position=format_lsn(seen.position),
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
            name, now = self.progress.source, self.patience.clock.now()
            trouble = None if state is None else trouble_of_state(name, state, since=now)
            step = RUN if trouble is None or not trouble.remedy else trouble.remedy
            why = "left" if state is None else state.word if trouble is None else trouble.reason
            return f"the table is not captured: {why}", step
        marker = self.progress.position()
        at, stands = format_lsn(seen.position), "nowhere" if marker is None else marker.position
        nobody = "" if self.progress.is_read else ", and nobody reads the slot"
        return f"the source is at {at}, the changelog at {stands}{nobody}", RUN

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
