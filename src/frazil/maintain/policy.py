"""What a table needs, from its facts and the settings; pure.

A table that has had its jobs needs none: ``frazil plan`` prints nothing for it, and the loop goes
back to sleep.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from frazil.maintain.facts import KeptRole
from frazil.maintain.jobs import (
    CompactJob,
    ExpireJob,
    JobFile,
    LedgerJob,
    ManifestsJob,
    OrphansJob,
    RetentionJob,
)
from frazil.model.humanize import counted, duration, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from frazil.maintain.facts import DataFileFacts, UpkeepFacts
    from frazil.maintain.jobs import Job
    from frazil.maintain.settings import CompactSettings, UpkeepSettings

# Smaller files are all alike: opening one costs the same.
_TIERS = 4
# A commit that expires a few snapshots costs a merge a lost race now and then.
_FEWEST_EXPIRED = 0.1
# Retention in one commit: each file is named once through the gateway.
_MOST_REMOVED = 20_000
# Rows of the ledger go in larger portions than the interval of maintenance.
LEDGER_SLACK = timedelta(days=1)
# A start reads the states of so many commits at most: a few hours of them.
MOST_STATE_COMMITS = 1_000
# A table of now has no files that are old.
_NEW_TABLE = timedelta(hours=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plan_jobs(facts: UpkeepFacts, settings: UpkeepSettings, now: datetime) -> tuple[Job, ...]:
    """The jobs of one table, in the order in which they help each other.

    No two of them name the same file. Expiry comes after what makes files superfluous.
    """
    if not settings.enabled or facts.head is None:
        return ()
    retention = _plan_retention(facts, settings, now)
    removed = {file.location for job in retention for file in job.files}
    jobs: list[Job] = [*retention]
    jobs += _plan_ledger(facts, settings, now)
    if settings.compact is not None:
        jobs += _plan_compaction(facts, settings.compact, removed)
    jobs += _plan_manifests(facts, settings)
    jobs += _plan_expiry(facts, settings, now)
    jobs += _plan_orphans(facts, settings, now)
    return tuple(jobs)


def _plan_compaction(
    facts: UpkeepFacts, settings: CompactSettings, removed: set[str]
) -> Iterator[CompactJob]:
    groups: defaultdict[tuple[int, str], list[DataFileFacts]] = defaultdict(list)
    for each in facts.files:
        # Deletes that another writer made for several files cannot move with one of them.
        if each.location not in removed and not each.foreign_deletes:
            groups[each.spec_id, each.partition].append(each)
    for (spec_id, partition), files in groups.items():
        small = _full_tiers(files, settings)
        # In the order of the manifests: rows that were written together stay together.
        chosen = (each for each in files if _is_dead(each, settings) or each.location in small)
        for portion in _portions(chosen, settings.max_bytes):
            has_dead = any(_is_dead(each, settings) for each in portion)
            if has_dead or len(portion) >= _least_files(settings):
                yield _compact_job(facts, spec_id, partition, portion, settings)


def _is_dead(file: DataFileFacts, settings: CompactSettings) -> bool:
    return file.dead > 0 and file.dead_ratio >= settings.dead_ratio


def _least_files(settings: CompactSettings) -> int:
    # One file alone would be rewritten to itself, again and again.
    return max(settings.min_files, 2)


def _live_bytes(file: DataFileFacts) -> int:
    return round(file.bytes * (1 - file.dead_ratio))


def _tier(file: DataFileFacts, settings: CompactSettings) -> int:
    """0 for the largest of the small files; files of one tier differ by less than the factor."""
    factor, bound = _least_files(settings), settings.small_bytes
    tier = 0
    while tier < _TIERS and _live_bytes(file) * factor < bound:
        bound //= factor
        tier += 1
    return tier


def _full_tiers(files: Sequence[DataFileFacts], settings: CompactSettings) -> frozenset[str]:
    """Small files of the largest size of which there are enough, with all that are smaller.

    So many files of one size become one of the next, so that a row is rewritten at most as often
    as there are sizes, however large the table grows.
    """
    small = [
        (_tier(each, settings), each.location)
        for each in files
        if each.bytes < settings.small_bytes and not _is_dead(each, settings)
    ]
    for tier in range(_TIERS + 1):
        if sum(at == tier for at, _ in small) >= _least_files(settings):
            return frozenset(location for at, location in small if at >= tier)
    return frozenset()


def _portions(files: Iterable[DataFileFacts], most: int) -> Iterator[list[DataFileFacts]]:
    portion: list[DataFileFacts] = []
    total = 0
    for each in files:
        if portion and total + each.bytes > most:
            yield portion
            portion, total = [], 0
        portion.append(each)
        total += each.bytes
    if portion:
        yield portion


def _compact_job(
    facts: UpkeepFacts,
    spec_id: int,
    partition: str,
    files: Sequence[DataFileFacts],
    settings: CompactSettings,
) -> CompactJob:
    total, dead = sum(each.bytes for each in files), sum(each.dead for each in files)
    small = sum(each.bytes < settings.small_bytes for each in files)
    reasons = [counted(small, "small file")] if small else []
    if dead:
        share = dead / max(sum(each.records for each in files), 1)
        reasons.append(f"{share:.0%} deleted rows")
    written = max(-(-sum(map(_live_bytes, files)) // settings.target_bytes), 1)
    return CompactJob(
        table=facts.name,
        snapshot_id=facts.head or 0,
        spec_id=spec_id,
        partition=partition,
        files=tuple(map(_job_file, files)),
        target_bytes=settings.target_bytes,
        order=settings.order,
        reason=" and ".join(reasons),
        cost_bytes=total,
        gain=f"{counted(len(files), 'file')} become {written}",
    )


def _job_file(file: DataFileFacts) -> JobFile:
    return JobFile(file.location, file.bytes, file.records, file.dead, file.sequence)


def _plan_retention(
    facts: UpkeepFacts, settings: UpkeepSettings, now: datetime
) -> tuple[RetentionJob, ...]:
    if facts.role is not KeptRole.CHANGELOG or settings.retain is None or not facts.merged:
        return ()
    merged = merged_by_all(facts)
    if merged is None:
        return ()
    before = _milliseconds(now - settings.retain)
    old = [
        each
        for each in facts.files
        if each.sequence <= merged and each.written_at < before and not each.foreign_deletes
    ][:_MOST_REMOVED]
    if not old:
        return ()
    freed = sum(each.bytes for each in old)
    age = duration(settings.retain.total_seconds())
    return (
        RetentionJob(
            table=facts.name,
            files=tuple(map(_job_file, old)),
            merged=merged,
            reason=f"{counted(len(old), 'file')} of merged changes older than {age}",
            cost_bytes=0,
            gain=f"frees {size(freed)} once its snapshots expire",
        ),
    )


def merged_by_all(facts: UpkeepFacts) -> int | None:
    """The data sequence number that every mirror has merged; None if one may need everything."""
    found = [each.sequence for each in facts.merged]
    known = [each for each in found if each is not None]
    return min(known) if known and len(known) == len(found) else None


def lagging_mirrors(
    facts: UpkeepFacts, settings: UpkeepSettings, now: datetime
) -> tuple[tuple[str, float], ...]:
    """Mirrors whose changes are older than the retention and stay for them alone, and how old.

    One that never merged lags since the oldest file. A mirror without waiting changes lags not.
    """
    if facts.role is not KeptRole.CHANGELOG or settings.retain is None:
        return ()
    found = []
    for each in facts.merged:
        waiting = [file.written_at for file in facts.files if file.sequence > (each.sequence or -1)]
        seconds = (_milliseconds(now) - min(waiting)) / 1000 if waiting else 0.0
        if seconds > settings.retain.total_seconds():
            found.append((each.mirror, seconds))
    return tuple(found)


def _plan_ledger(
    facts: UpkeepFacts, settings: UpkeepSettings, now: datetime
) -> tuple[LedgerJob, ...]:
    if facts.role is not KeptRole.LEDGER:
        return ()
    before = _EPOCH if settings.retain is None else now - settings.retain
    limit = _milliseconds(before) - _milliseconds(_EPOCH + LEDGER_SLACK)
    old = [each for each in facts.files if each.written_at < limit]
    reasons = []
    if old:
        reasons.append(f"{counted(len(old), 'file')} with batches of before {before:%Y-%m-%d}")
    if facts.commits_since_states > MOST_STATE_COMMITS:
        reasons.append(f"states of tables in {facts.commits_since_states:,} commits")
    if not reasons:
        return ()
    return (
        LedgerJob(
            table=facts.name,
            before=before,
            reason=" and ".join(reasons),
            cost_bytes=sum(each.bytes for each in old),
            gain="a start reads one state for each table",
        ),
    )


def _plan_manifests(facts: UpkeepFacts, settings: UpkeepSettings) -> tuple[ManifestsJob, ...]:
    # Those that are large, or of an earlier partitioning, would stay as they are.
    if facts.manifests <= settings.max_manifests or (
        facts.small_manifests <= settings.max_manifests // 2
    ):
        return ()
    return (
        ManifestsJob(
            table=facts.name,
            manifests=facts.manifests,
            reason=f"{facts.manifests:,} manifests, more than {settings.max_manifests:,}",
            cost_bytes=facts.manifest_bytes,
            gain="scans and commits read fewer of them",
        ),
    )


def _plan_expiry(
    facts: UpkeepFacts, settings: UpkeepSettings, now: datetime
) -> tuple[ExpireJob, ...]:
    if facts.is_shared:
        return ()
    kept = kept_snapshots(facts, settings, now)
    expired = tuple(each.id for each in facts.snapshots if each.id not in kept)
    if not expired or len(expired) < _FEWEST_EXPIRED * len(facts.snapshots):
        return ()
    age = duration(settings.keep_snapshots.total_seconds())
    return (
        ExpireJob(
            table=facts.name,
            snapshots=expired,
            reason=f"{counted(len(expired), 'snapshot')} older than {age}",
            cost_bytes=0,
            gain="their files are removed, and the metadata is smaller",
        ),
    )


def kept_snapshots(facts: UpkeepFacts, settings: UpkeepSettings, now: datetime) -> frozenset[int]:
    """The snapshots that stay: young ones, the newest, and what anybody still needs.

    Of a snapshot that is needed all that follow it stay too: history leads from parent to parent,
    and a merge reads every snapshot after the last one merged.
    """
    line = facts.line
    parents = {each.id: each.parent for each in facts.snapshots}
    before = _milliseconds(now - settings.keep_snapshots)
    kept = {each.id for each in facts.snapshots if each.committed_at >= before}
    kept.update(line[: settings.min_snapshots])
    for needed in facts.needed:
        kept.update(line[: line.index(needed) + 1] if needed in line else (needed,))
    if any(each.snapshot_id is None for each in facts.merged):
        # It may begin with any of them.
        kept.update(line)
    for ref in facts.refs:
        kept.add(ref.snapshot_id)
        current = ref.snapshot_id if ref.is_branch else None
        # What only another branch has is not ours to remove.
        while current is not None and current in parents and current not in line:
            kept.add(current)
            current = parents[current]
    return frozenset(kept)


def _plan_orphans(
    facts: UpkeepFacts, settings: UpkeepSettings, now: datetime
) -> tuple[OrphansJob, ...]:
    if facts.is_shared:
        return ()
    listed = facts.orphans_listed_at
    if listed is not None and now - listed < settings.orphan_interval:
        return ()
    times = [each.committed_at for each in facts.snapshots]
    times += [each.written_at for each in facts.files]
    if listed is None and min(times, default=0) > _milliseconds(now - _NEW_TABLE):
        return ()
    since = "" if listed is None else f" for {duration((now - listed).total_seconds())}"
    return (
        OrphansJob(
            table=facts.name,
            before=now - settings.orphan_age,
            reason=f"files were not compared with snapshots{since}",
            cost_bytes=facts.manifest_bytes,
            gain="files that no snapshot names are removed",
        ),
    )


def _milliseconds(moment: datetime) -> int:
    return round((moment - _EPOCH).total_seconds() * 1000)
