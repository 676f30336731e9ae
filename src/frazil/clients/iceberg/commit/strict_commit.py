"""Commits to a table; every commit goes through this module.

Snapshot, schema, statistics file and marker are staged in an Iceberg transaction that is never
committed itself: its own commit would silently rebase on a new head. The staged metadata is
committed to the catalog against the base it was staged on, so everything lands, or nothing does.
After an exception the table is reloaded to see whether the commit landed. An attempt never deletes
a data file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from frazil import errors
from frazil.clients.iceberg.commit.metadata_log import (
    KEPT_VERSIONS,
    KEPT_VERSIONS_PROPERTY,
    MetadataLog,
    Validity,
    judge_marker,
)
from frazil.clients.iceberg.gateway import REWRITE, ROW_DELTA, FileIntake
from frazil.clients.java_errors import java_classes, translate
from frazil.codec.iceberg_json import schema_to_json
from frazil.codec.marker_json import encode_marker
from frazil.hooks import Failpoint, failpoint
from frazil.model import marker as markers
from frazil.model.command import command
from frazil.model.marker import Carry, Marker, MarkerMove, Override, SnapshotRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from frazil.clients.iceberg.gateway import IcebergGateway, JavaObject
    from frazil.clients.iceberg.read.table_metadata import SnapshotFacts, TableMetadata, TableReader
    from frazil.model.schema.types import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChanges:
    """Files to add and remove, each described by Iceberg's own JSON."""

    added: tuple[str, ...] = ()
    added_deletes: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    removed_deletes: tuple[str, ...] = ()
    # Removes all files of the table except ``added``.
    replaces_everything: bool = False
    # Set when ``added`` has the rows of ``removed``, and only those: the sequence number up to
    # which deletes were applied to them.
    rewritten_at: int | None = None
    # Whether ``added`` also has rows of files that went meanwhile; they are deleted in it.
    has_surplus_rows: bool = False

    @property
    def only_adds(self) -> bool:
        """Whether this can be repeated on another head unchanged."""
        deletes = self.added_deletes or self.removed or self.removed_deletes
        return not deletes and not self.replaces_everything

    @property
    def is_rewrite(self) -> bool:
        """Whether Iceberg takes it as the same rows in other files.

        It refuses new deletes where no old ones go, and more rows than those of the removed files.
        """
        is_balanced = self.removed_deletes or not self.added_deletes
        is_moved = self.rewritten_at is not None and not self.has_surplus_rows
        return bool(is_moved and self.removed and is_balanced)


@dataclass(frozen=True, slots=True)
class StatisticsFile:
    """A Puffin file to register with the snapshot."""

    path: str
    size: int
    footer_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictCommit:
    """One commit: the marker's move, the files, and what else is committed with them.

    ``statistics`` is called with the snapshot to be committed and may write a file that names it.
    ``planned_on`` is the head the changes were planned on; without it they are valid on any head.
    ``schema_before`` is the id of the schema that ``schema`` was planned on: a schema can change
    without a new head.
    """

    move: MarkerMove | Override | Carry
    changes: FileChanges = field(default_factory=FileChanges)
    schema: Schema | None = None
    schema_before: int | None = None
    summary: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    statistics: Callable[[SnapshotRef], StatisticsFile | None] | None = None
    planned_on: int | None = None


class CommitOutcome(StrEnum):
    """How a commit got into the table."""

    COMMITTED = "committed"
    ALREADY_DONE = "already done"
    FOUND_AFTERWARDS = "found afterwards"


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that the move is in the table."""

    outcome: CommitOutcome
    marker: Marker


def unplanned_counts(
    staged: SnapshotFacts, changes: FileChanges, head: SnapshotFacts | None
) -> tuple[str, ...]:
    """Differences between the planned file counts and those of the staged snapshot.

    A delete file that is silently kept would make the table unreadable.
    """
    before = head.count("total-data-files") if head is not None else 0
    removed = before if changes.replaces_everything else len(changes.removed)
    planned = {
        "added-data-files": len(changes.added),
        "added-delete-files": len(changes.added_deletes),
        "deleted-data-files": removed,
    }
    if not removed:
        # With a data file Iceberg may drop deletes that only that file needed.
        planned["removed-delete-files"] = len(changes.removed_deletes)
    if changes.rewritten_at is not None:
        # Iceberg drops deletes that are older than all other data files, though the rewritten rows,
        # which are older still, need them (apache/iceberg#10962).
        planned["removed-equality-delete-files"] = 0
    return tuple(
        f"{name} is {staged.count(name)}, planned were {count}"
        for name, count in planned.items()
        if staged.count(name) != count
    )


class Committer:
    """Commits to one table; ``reload`` opens the table again, bypassing caches."""

    def __init__(
        self,
        gateway: IcebergGateway,
        table: JavaObject,
        *,
        name: str,
        uuid: str,
        reader: TableReader,
        reload: Callable[[], JavaObject],
    ) -> None:
        self._gateway = gateway
        self._table = table
        self._name = name
        self._uuid = uuid
        self._reader = reader
        self._reload = reload
        # The last snapshot proven to descend from the one that wrote the marker, and that one.
        self._proven: tuple[int, int] | None = None

    def go_on_with(self, table: JavaObject) -> None:
        """Use the same table, loaded again; every commit proves that it is the same."""
        self._table = table

    def commit(self, commit: StrictCommit) -> Receipt:
        """Make one attempt.

        Raises CommitConflictError when the table moved and the marker did not: the caller plans
        again from the same start. Raises FencedError when another process did this work, and
        StaleIndexError when the head is the planned one but does not have the files that the
        changes name: planning again from the same facts would not help.
        """
        failpoint(Failpoint.COMMIT_PLANNED)
        try:
            transaction = self._table.newTransaction()
            base = transaction.table().operations().current()
        except Py4JError as error:
            raise self._unreadable(error) from error
        verdict = self._judge(base, commit.move)
        if isinstance(verdict, markers.AlreadyDone):
            return Receipt(CommitOutcome.ALREADY_DONE, verdict.marker)
        self._require_planned_on(base, commit)
        staged = self._stage(transaction, commit, verdict.marker, self._reader.state(base))
        written = verdict.marker.written_by(SnapshotRef(staged.id, staged.sequence))
        new = self._with_marker(transaction, commit, written, self._reader.state(base))
        failpoint(Failpoint.COMMIT_STAGED)
        try:
            self._table.operations().commit(base, new)
        except Py4JError as error:
            return self._resolve(commit.move, written, error)
        failpoint(Failpoint.COMMIT_LANDED)
        return Receipt(CommitOutcome.COMMITTED, written)

    def marker(self, metadata: JavaObject, role: markers.MarkerRole) -> Marker | None:
        """The valid marker of this version of the table, or None if we never wrote to it.

        Raises MarkerLostError when there are rows and no marker, RolledBackError when the marker
        is not of this history, TableReplacedError when the table is another one.
        """
        state = self._same_table(metadata)
        found = state.marker(role, table=self._name)
        if found is None:
            self._require_empty(state, role)
            return None
        self._require_valid(found, role, state, metadata)
        return found

    def _same_table(self, metadata: JavaObject) -> TableMetadata:
        state = self._reader.state(metadata)
        if state.uuid != self._uuid:
            message = f"its UUID is {state.uuid} and was {self._uuid}."
            raise errors.TableReplacedError(message, table=self._name)
        return state

    def _require_planned_on(self, base: JavaObject, commit: StrictCommit) -> None:
        head, schema = commit.planned_on, commit.schema_before
        if head is not None and self._head_id(base) != head:
            raise errors.CommitConflictError("the table has a newer head.", table=self._name)
        if schema is not None and int(base.currentSchemaId()) != schema:
            raise errors.CommitConflictError("the table has a newer schema.", table=self._name)

    def _judge(
        self, base: JavaObject, move: MarkerMove | Override | Carry
    ) -> markers.Allowed | markers.AlreadyDone:
        if isinstance(move, Override):
            return self._judge_override(base, move)
        if isinstance(move, Carry):
            return self._judge_carry(base, move)
        verdict = markers.judge_move(self.marker(base, move.role), move)
        match verdict:
            case markers.Allowed() | markers.AlreadyDone():
                return verdict
            case _:
                raise self._refusal(verdict, move)

    def _judge_override(self, base: JavaObject, move: Override) -> markers.Allowed:
        if self._same_table(base).properties.get(move.role.property_name) != move.seen:
            message = f"the {move.role} marker was moved by another process."
            raise errors.CommitConflictError(message, table=self._name)
        return markers.Allowed(move.goal)

    def _judge_carry(self, base: JavaObject, move: Carry) -> markers.Allowed:
        found = self.marker(base, move.role)
        if found is None:
            message = "nothing was written to the table yet."
            raise errors.CommitConflictError(message, table=self._name)
        return markers.Allowed(replace(found, snapshot=None))

    def _refusal(self, verdict: markers.Verdict, move: MarkerMove) -> errors.FrazilError:
        match verdict:
            case markers.Overtaken(found):
                message = (
                    f"the {move.role} marker was moved by batch {found.batch} of pipeline "
                    f"{found.pipeline}; expected it where batch {move.goal.batch} was planned."
                )
                return errors.FencedError(message, table=self._name)
            case markers.OtherSource(found):
                message = f"its marker counts in source {found.source}, not {move.goal.source}."
                return errors.SourceReplacedError(
                    message, table=self._name, next_step=command("resync", self._name)
                )
            case _:
                message = f"the property {move.role.property_name} is missing."
                return errors.MarkerLostError(
                    message, table=self._name, next_step=self._continuing(move.role)
                )

    def _require_empty(self, state: TableMetadata, role: markers.MarkerRole) -> None:
        head = state.head
        if head is not None and head.count("total-records"):
            message = f"the table has {head.count('total-records')} rows and no marker of ours."
            raise errors.MarkerLostError(
                message, table=self._name, next_step=self._continuing(role)
            )

    def _require_valid(
        self, found: Marker, role: markers.MarkerRole, state: TableMetadata, metadata: JavaObject
    ) -> None:
        # Usually the head wrote the marker; otherwise the history is read.
        writer, head = found.snapshot, state.head
        if writer is not None and head is not None and head.id == writer.id:
            return
        proven = self._proven
        known = proven[1] if proven is not None and writer and proven[0] == writer.id else None
        validity = judge_marker(found, self.iter_with_expired(metadata), descendant=known)
        if validity is not Validity.VALID:
            raise self._rolled_back(found, role, validity)
        if writer is not None and head is not None:
            self._proven = (writer.id, head.id)

    def iter_with_expired(self, metadata: JavaObject) -> Iterator[SnapshotFacts]:
        """The head and its ancestors, newest first, with expired ones while the log has them."""
        return MetadataLog(self._gateway, self._table, metadata, self._reader).iter_ancestry()

    def _rolled_back(
        self, found: Marker, role: markers.MarkerRole, validity: Validity
    ) -> errors.RolledBackError:
        writer = "unknown" if found.snapshot is None else found.snapshot.id
        is_proven = validity is Validity.ROLLED_BACK
        message = f"snapshot {writer}, which wrote the marker, is not in the table's history."
        if not is_proven:
            message = (
                f"snapshot {writer}, which wrote the marker, was expired, and the metadata log "
                "does not go back to it: a rollback cannot be ruled out."
            )
        next_step = self._continuing(role, may_append=not is_proven)
        error = errors.RolledBackError(message, table=self._name, next_step=next_step)
        error.is_proven = is_proven
        return error

    def _continuing(self, role: markers.MarkerRole, *, may_append: bool = False) -> str:
        """The command that continues from the current state.

        A mirror may continue from an older one: merging twice is harmless, appending twice is not.
        """
        if role is markers.MarkerRole.MERGE or may_append:
            return command("position", "set", self._name, "--role", role)
        return command("resync", self._name)

    def _head_id(self, metadata: JavaObject) -> int | None:
        head = metadata.currentSnapshot()
        return None if head is None else int(head.snapshotId())

    def _stage(
        self, transaction: JavaObject, commit: StrictCommit, goal: Marker, base: TableMetadata
    ) -> SnapshotFacts:
        """Apply everything but the marker inside the transaction; counts must be as planned."""
        staging = transaction.table().operations()
        try:
            if commit.schema is not None:
                self._stage_schema(staging, commit.schema)
            update = self._update(transaction, commit.changes, base.head)
            for key, value in _summary(commit, goal).items():
                update.set(key, value)
            update.commit()
            staged = self._reader.head(staging.current())
        except Py4JError as error:
            raise self._not_staged(error, commit) from error
        if staged is None:
            raise errors.CommitConflictError("no snapshot was staged.", table=self._name)
        if unplanned := unplanned_counts(staged, commit.changes, base.head):
            message = f"the files are not those of the plan: {'; '.join(unplanned)}."
            raise self._other_files(message, commit)
        return staged

    def _stage_schema(self, staging: JavaObject, schema: Schema) -> None:
        wanted = self._gateway.schema_parser.fromJson(schema_to_json(schema))
        current = staging.current()
        last = max(int(current.lastColumnId()), int(wanted.highestFieldId()))
        builder = self._gateway.table_metadata.buildFrom(current)
        staging.commit(current, builder.setCurrentSchema(wanted, last).build())

    def _update(
        self, transaction: JavaObject, changes: FileChanges, head: SnapshotFacts | None
    ) -> JavaObject:
        specs = transaction.table().specs()
        apply_files = self._gateway.apply_files
        if changes.replaces_everything:
            update = transaction.newOverwrite()
            update.overwriteByRowFilter(self._gateway.expressions.alwaysTrue())
            apply_files(update, FileIntake.OVERWRITE, changes.added, specs)
            return update
        if changes.only_adds:
            # Not the fast append: merged manifests keep planning and later commits cheap.
            update = transaction.newAppend()
            apply_files(update, FileIntake.APPEND, changes.added, specs)
            return update
        update = transaction.newRewrite() if changes.is_rewrite else transaction.newRowDelta()
        intakes = REWRITE if changes.is_rewrite else ROW_DELTA
        for intake, descriptors in zip(
            intakes,
            (changes.added, changes.added_deletes, changes.removed, changes.removed_deletes),
            strict=True,
        ):
            apply_files(update, intake, descriptors, specs)
        if head is not None:
            # Without it Iceberg searches the entire history for deletes of the same files.
            update.validateFromSnapshot(head.id)
        if changes.is_rewrite:
            # Otherwise a later equality delete of another engine would miss the moved rows.
            update.dataSequenceNumber(changes.rewritten_at)
            return update
        update.validateDeletedFiles()
        named = self._gateway.text_list(_referenced(changes.added_deletes))
        update.validateDataFilesExist(named)
        return update

    def _with_marker(
        self, transaction: JavaObject, commit: StrictCommit, written: Marker, base: TableMetadata
    ) -> JavaObject:
        """The staged metadata with everything that is committed together with the snapshot."""
        builder = self._gateway.table_metadata.buildFrom(transaction.table().operations().current())
        properties = {**commit.properties, commit.move.role.property_name: encode_marker(written)}
        if _kept_versions(base) < KEPT_VERSIONS:
            # Expired snapshots are found in earlier versions.
            properties[KEPT_VERSIONS_PROPERTY] = str(KEPT_VERSIONS)
        builder.setProperties(properties)
        snapshot = written.snapshot
        if commit.statistics is not None and snapshot is not None:
            file = commit.statistics(snapshot)
            if file is not None:
                # No list of blobs: readers refuse tables that list types they do not know.
                entry = self._gateway.statistics_file(
                    snapshot.id, file.path, file.size, file.footer_size, []
                )
                builder.setStatistics(entry)
        return builder.build()

    def _resolve(
        self, move: MarkerMove | Override | Carry, written: Marker, cause: Py4JError
    ) -> Receipt:
        """Reload the table to see whether a commit that raised an exception has landed."""
        try:
            metadata = self._reload().operations().current()
            snapshot = written.snapshot
            ours = None if snapshot is None else self._reader.snapshot(metadata, snapshot.id)
        except Py4JError as error:
            raise self._unknown(written, error) from error
        except (errors.LakeError, errors.SourceError) as error:
            raise self._no_answer(written) from error
        if ours is not None:
            # Landed, whatever was reported. Raises if it was rolled back since.
            self.marker(metadata, move.role)
            return Receipt(CommitOutcome.FOUND_AFTERWARDS, written)
        verdict = self._judge(metadata, move)
        if isinstance(verdict, markers.AlreadyDone):
            return Receipt(CommitOutcome.FOUND_AFTERWARDS, verdict.marker)
        refused = translate(cause, table=self._name, doing="committing")
        if isinstance(refused, errors.PermissionError):
            # Retrying would not help.
            raise refused from cause
        message = f"the commit did not land and no other did the work ({refused.message})"
        raise errors.CommitConflictError(message, table=self._name) from cause

    def _unknown(self, written: Marker, error: Py4JError) -> errors.FrazilError:
        """A dropped table is a definite result; any other failure leaves the outcome unknown."""
        gone = translate(error, table=self._name, doing="verifying the commit")
        return gone if isinstance(gone, errors.TableNotFoundError) else self._no_answer(written)

    def _no_answer(self, written: Marker) -> errors.CommitUnknownError:
        message = f"the outcome of a commit of batch {written.batch} could not be verified."
        return errors.CommitUnknownError(message, table=self._name)

    def _unreadable(self, error: Py4JError) -> errors.FrazilError:
        """Nothing was sent: report whether the table is dropped, replaced, or not reachable."""
        try:
            uuid = str(self._reload().operations().current().uuid())
        except Py4JError as second:
            return translate(second, table=self._name, doing="opening the table")
        if uuid != self._uuid:
            message = f"its UUID is {uuid} and was {self._uuid}."
            return errors.TableReplacedError(
                message, table=self._name, next_step=command("resync", self._name)
            )
        return translate(error, table=self._name, doing="refreshing the table")

    def _not_staged(self, error: Py4JError, commit: StrictCommit) -> errors.FrazilError:
        names = java_classes(error)
        if any(name.endswith(".ValidationException") for name in names):
            return self._other_files("files of the plan are not in the table.", commit)
        return translate(error, table=self._name, doing="preparing the commit")

    def _other_files(self, message: str, commit: StrictCommit) -> errors.FrazilError:
        """With the planned head unchanged this is no conflict: the index was wrong."""
        if commit.planned_on is None:
            return errors.CommitConflictError(message, table=self._name)
        return errors.StaleIndexError(message, table=self._name)


def _summary(commit: StrictCommit, goal: Marker) -> dict[str, str]:
    """What the snapshot says of itself: its batch, and the marker if that moves."""
    own = {**commit.summary, "frazil.batch": goal.batch}
    if not isinstance(commit.move, Carry):
        own[commit.move.role.property_name] = encode_marker(commit.move.goal)
    elif isinstance(goal.position, str):
        # By partition, a summary has only those that moved: here it would be none.
        own[commit.move.role.property_name] = encode_marker(goal)
    return own


def _kept_versions(state: TableMetadata) -> int:
    text = state.properties.get(KEPT_VERSIONS_PROPERTY, "")
    return int(text) if text.isdecimal() else KEPT_VERSIONS


def _referenced(descriptors: tuple[str, ...]) -> list[str]:
    """The data files that these delete files refer to."""
    named = (json.loads(text).get("referenced-data-file") for text in descriptors)
    return [path for path in named if path is not None]
