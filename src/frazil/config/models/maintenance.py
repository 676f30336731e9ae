"""Settings of maintenance: what keeps tables small and fast, for all tables and for single ones."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema

from frazil.config.models.section import Broken, Section, defaults
from frazil.config.models.values import (
    DURATION_PATTERN,
    DURATION_WORDS,
    Count,
    Duration,
    Name,
    Percent,
    Size,
    Truth,
    format_duration,
    one_of,
    parse_duration,
    refuse,
)
from frazil.model.policy import CompactionOrder, Forever
from frazil.model.time_window import parse_window

# Facts are read from metadata alone; more often than files pile up would be wasted.
MAINTENANCE_INTERVAL = timedelta(minutes=5)
# A scan opens a file in about the time that it reads some 32 MiB.
SMALL_FILE = 32 * 2**20
# Fewer are not worth a commit.
MIN_FILES = 8
# A scan that skips a fifth of its rows is about a fifth slower.
DEAD_ROWS = 20
COMPACTED_FILE_SIZE = 128 * 2**20
# Minutes of one task slot; what is lost when the process is killed.
JOB_BYTES = 2 * 2**30
# A day back for who reads a table as of yesterday.
SNAPSHOTS_KEPT = timedelta(hours=24)
LEAST_SNAPSHOTS = 10
# Each is one request when a scan is planned.
MOST_MANIFESTS = 200
# Longer than any weekend on which nobody looks at a mirror that has stopped.
CHANGES_KEPT = timedelta(days=7)
LEDGER_KEPT = timedelta(days=30)
# Iceberg's own default. Files of a commit that is being made look like orphans until it lands.
ORPHAN_AGE = timedelta(days=3)
YOUNGEST_ORPHAN = timedelta(hours=1)
ORPHAN_INTERVAL = timedelta(days=1)
# Merges and ingest come first.
SHARE = 25


def _retention(value: object) -> object:
    if isinstance(value, Forever) or value == Forever.FOREVER.value:
        return Forever.FOREVER
    try:
        kept = value if isinstance(value, timedelta) else parse_duration(str(value))
    except ValueError:
        kept = timedelta(0)
    if kept <= timedelta(0):
        sentence = f"must be {DURATION_WORDS}, and more than nothing, or forever"
        raise refuse(sentence)
    return kept


def _written(kept: timedelta | Forever) -> str:
    return kept.value if isinstance(kept, Forever) else format_duration(kept)


def _window(text: str) -> str:
    try:
        parse_window(text)
    except ValueError as error:
        sentence = f"must be {error}"
        raise refuse(sentence) from None
    return text


Retention = Annotated[
    timedelta | Forever,
    BeforeValidator(_retention),
    PlainSerializer(_written, return_type=str),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "pattern": DURATION_PATTERN}, {"const": "forever"}]}
    ),
]
Window = Annotated[Name, AfterValidator(_window)]


class Compaction(Section):
    """When data files are rewritten into larger ones."""

    small_file: Size = SMALL_FILE
    """Files below this size are small."""
    min_files: Count = MIN_FILES
    """Small files of about the same size before they are rewritten."""
    dead_rows: Percent = DEAD_ROWS
    """Deleted rows of a file above which it is rewritten."""
    target_file_size: Size = COMPACTED_FILE_SIZE
    """Size of the files that are written."""
    max_bytes: Size = JOB_BYTES
    """Bytes that one job rewrites."""
    sort: Annotated[CompactionOrder, one_of(CompactionOrder)] = CompactionOrder.KEEP
    """keep the order of rows, or table: sort again by the table's sort order."""

    def broken_rules(self) -> Iterator[Broken]:
        """What was rewritten is not small, and one file fits in a job."""
        if self.target_file_size < self.small_file:
            sentence = "must not be less than compact.small_file"
            yield Broken(("target_file_size",), sentence, (("small_file",),))
        if self.max_bytes < self.target_file_size:
            sentence = "must not be less than compact.target_file_size"
            yield Broken(("max_bytes",), sentence, (("target_file_size",),))


class SnapshotRetention(Section):
    """Which snapshots stay."""

    keep: Duration = SNAPSHOTS_KEPT
    """Older ones are expired, but for what a merge, a tag or a branch needs."""
    min: Count = LEAST_SNAPSHOTS
    """The newest that always stay."""


class Manifests(Section):
    """The lists of a table's files."""

    max: Count = MOST_MANIFESTS
    """Manifests above which they are rewritten."""


class ChangelogRetention(Section):
    """How long changes are kept once every mirror has merged them."""

    retain: Retention = CHANGES_KEPT
    """Age after which merged changes are removed; forever keeps all."""
    compact: Truth = True
    """Whether changelogs are compacted."""


class LedgerRetention(Section):
    """How long the ledger tells of batches."""

    retain: Retention = LEDGER_KEPT
    """Age after which they are removed; states of tables stay. forever keeps all."""


class Orphans(Section):
    """Files that no snapshot names: of attempts that died, and of expired index runs."""

    older_than: Duration = ORPHAN_AGE
    """Age after which they are removed."""
    interval: Duration = ORPHAN_INTERVAL
    """How often a table's files are listed."""

    def broken_rules(self) -> Iterator[Broken]:
        """Files of a running merge have no snapshot either."""
        if self.older_than < YOUNGEST_ORPHAN:
            least = format_duration(YOUNGEST_ORPHAN)
            yield Broken(("older_than",), f"must be at least {least}: running work has such files")


class Maintenance(Section):
    """What is done, next to merges, so that tables stay small and fast."""

    enabled: Truth = True
    """false leaves every table as it is."""
    interval: Duration = MAINTENANCE_INTERVAL
    """How often the tables are looked at."""
    compact: Compaction = defaults("Rewriting of data files.")
    snapshots: SnapshotRetention = defaults("Expiry of snapshots.")
    manifests: Manifests = defaults("Rewriting of manifests.")
    changelog: ChangelogRetention = defaults("Retention of changes.")
    ledger: LedgerRetention = defaults("Retention of the ledger.")
    orphans: Orphans = defaults("Removal of files that no snapshot names.")
    windows: tuple[Window, ...] = ()
    """When it may run, such as "22:00-06:00 Europe/Berlin"; empty: always."""
    share: Percent = SHARE
    """Task slots of the process that it takes at most."""


class MaintenanceOverride(Section):
    """A part of maintenance that one table sets differently; what is left out stays."""


class CompactionOverrides(MaintenanceOverride):
    """The keys of maintenance.compact that one table sets differently."""

    small_file: Size | None = None
    """Instead of maintenance.compact.small_file."""
    min_files: Count | None = None
    """Instead of maintenance.compact.min_files."""
    dead_rows: Percent | None = None
    """Instead of maintenance.compact.dead_rows."""
    target_file_size: Size | None = None
    """Instead of maintenance.compact.target_file_size."""
    max_bytes: Size | None = None
    """Instead of maintenance.compact.max_bytes."""
    sort: Annotated[CompactionOrder, one_of(CompactionOrder)] | None = None
    """Instead of maintenance.compact.sort."""


class SnapshotOverrides(MaintenanceOverride):
    """The keys of maintenance.snapshots that one table sets differently."""

    keep: Duration | None = None
    """Instead of maintenance.snapshots.keep."""
    min: Count | None = None
    """Instead of maintenance.snapshots.min."""


class ManifestOverrides(MaintenanceOverride):
    """The keys of maintenance.manifests that one table sets differently."""

    max: Count | None = None
    """Instead of maintenance.manifests.max."""


class ChangelogOverrides(MaintenanceOverride):
    """The keys of maintenance.changelog that one table sets differently."""

    retain: Retention | None = None
    """Instead of maintenance.changelog.retain."""
    compact: Truth | None = None
    """Instead of maintenance.changelog.compact."""


class OrphanOverrides(MaintenanceOverride):
    """The keys of maintenance.orphans that one table sets differently."""

    older_than: Duration | None = None
    """Instead of maintenance.orphans.older_than."""
    interval: Duration | None = None
    """Instead of maintenance.orphans.interval."""


class MaintenanceOverrides(MaintenanceOverride):
    """The keys of maintenance that one table, its mirror and its changelog, sets differently."""

    enabled: Truth | None = None
    """Instead of maintenance.enabled."""
    compact: CompactionOverrides = defaults("Keys of maintenance.compact.")
    snapshots: SnapshotOverrides = defaults("Keys of maintenance.snapshots.")
    manifests: ManifestOverrides = defaults("Keys of maintenance.manifests.")
    changelog: ChangelogOverrides = defaults("Keys of maintenance.changelog.")
    orphans: OrphanOverrides = defaults("Keys of maintenance.orphans.")
