"""All errors of frazil, on one page.

::

    FrazilError
    ├── ConfigError
    ├── SourceError
    │   ├── SourceUnavailableError
    │   ├── PermissionError
    │   ├── PositionLostError
    │   ├── SlotBusyError
    │   ├── SourceReplacedError
    │   ├── MissingSegmentError
    │   └── MalformedChangeError
    ├── SchemaError
    │   ├── UnsupportedSchemaChangeError
    │   └── UnrepresentableValueError
    ├── LakeError
    │   ├── TableNotFoundError
    │   ├── StorageError
    │   ├── CatalogError
    │   ├── WriteFailedError
    │   ├── CommitConflictError
    │   ├── CommitUnknownError
    │   ├── FencedError
    │   ├── TableReplacedError
    │   ├── MarkerLostError
    │   ├── RolledBackError
    │   ├── OutOfOrderError
    │   ├── DuplicateKeyError
    │   ├── NullKeyError
    │   ├── MissingImageError
    │   ├── EqualityDeletesError
    │   └── ForeignChangeError
    ├── IndexError_
    │   ├── StaleIndexError
    │   └── DamagedIndexError
    ├── LeaseLostError
    ├── ShutdownRequested
    ├── RuntimeMissingError
    ├── ServiceError
    └── DefectError

A leaf has a stable code ``FRZ-<AREA>-<NN>``, a sentence that says what it means, and a remedy;
``frazil explain`` and the documentation print those very texts. What a process does about an
error is not written here but in ``pipeline/recovery.py``. Messages carry names, positions and
counts, never a value from a row.
"""

from __future__ import annotations

from typing import ClassVar

# This module imports nothing but typing: every package and every Spark task loads it at no cost.


class FrazilError(Exception):
    """What went wrong, with which table and where, and the next command to type.

    Survives pickling with all its fields, so that it can cross from a Spark task to the driver.
    """

    code: ClassVar[str] = ""
    meaning: ClassVar[str] = ""
    remedy: ClassVar[str] = ""

    # Whether the changes themselves are at fault, whatever the mirror holds.
    in_changes = False

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        position: str | None = None,
        next_step: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.table = table
        self.position = position
        self.next_step = next_step

    @property
    def reason(self) -> str:
        """What went wrong and where, without the next step."""
        where = ""
        if self.table is not None and self.position is not None:
            where = f"{self.table} at {self.position}: "
        elif self.table is not None:
            where = f"{self.table}: "
        elif self.position is not None:
            where = f"at {self.position}: "
        return f"{where}{self.message}"

    def __str__(self) -> str:
        return self.reason if self.next_step is None else f"{self.reason} Next: {self.next_step}"

    def __reduce__(self) -> tuple[object, ...]:
        # BaseException would rebuild from ``args`` alone and lose every keyword.
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


def _rebuild(
    cls: type[FrazilError], args: tuple[object, ...], state: dict[str, object]
) -> FrazilError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigError(FrazilError):
    """The configuration cannot be used; ``mistakes`` lists every fault, one line each."""

    code = "FRZ-CFG-01"
    meaning = (
        "The configuration document, an environment override or a command line option is wrong."
    )
    remedy = "Correct the lines named in the message; `frazil config schema` lists what is allowed."

    def __init__(
        self,
        message: str,
        *,
        mistakes: tuple[str, ...] = (),
        table: str | None = None,
        position: str | None = None,
        next_step: str | None = None,
    ) -> None:
        super().__init__(message, table=table, position=position, next_step=next_step)
        self.mistakes = mistakes


class SourceError(FrazilError):
    """Something at the source of changes, or on the way to it."""


class SourceUnavailableError(SourceError):
    """The source does not answer."""

    code = "FRZ-SRC-01"
    meaning = (
        "The source could not be reached, or closed the connection: network, restart, fail- "
        "over, credentials being renewed."
    )
    remedy = "Nothing if it passes: frazil reconnects with back-off. If not, run `frazil check`."


class PermissionError(SourceError):  # noqa: A001 - the published name of this error
    """The source refuses what we ask for."""

    code = "FRZ-SRC-02"
    meaning = (
        "The source, the catalog or the store refused an operation: a privilege is missing or the "
        "credentials are not accepted."
    )
    remedy = "Run `frazil check`: it prints what must be granted, and the SQL for it."


class PositionLostError(SourceError):
    """The source can no longer give the changes after our position."""

    code = "FRZ-SRC-03"
    meaning = (
        "Changes that were not captured yet are lost: slot invalidated or dropped, segments "
        "removed by retention, a table replaced, published otherwise or stopped for too long."
    )
    remedy = (
        "Run `frazil resync TABLE` for the tables named; their mirrors stay readable meanwhile."
    )


class SlotBusyError(SourceError):
    """Another connection is reading the replication slot."""

    code = "FRZ-SRC-04"
    meaning = "Another process reads the same replication slot; this one is a standby."
    remedy = (
        "Nothing if it is the same pipeline: this process takes over when the other one ends. "
        "Otherwise give this pipeline its own name and slot."
    )


class SourceReplacedError(SourceError):
    """The source is not the one our positions were counted in."""

    code = "FRZ-SRC-05"
    meaning = (
        "The server answers with another identity, timeline, database or log than the one captured "
        "so far: it is another one, was restored, or lacks changes that were captured."
    )
    remedy = (
        "Point the configuration at the right server, or run `frazil resync` to start from "
        "this one."
    )


class MissingSegmentError(SourceError):
    """A segment between two others is not there."""

    code = "FRZ-SRC-06"
    meaning = "A segment file is missing between two offsets that exist; it may still be uploading."
    remedy = "If it does not appear, restore it, or set `source.on_gap: record` to accept the gap."


class MalformedChangeError(SourceError):
    """Bytes from the source do not decode."""

    code = "FRZ-SRC-07"
    meaning = (
        "Bytes read from the source are not in the format it promises; the position is in the "
        "message, the bytes are not."
    )
    remedy = (
        "Inspect the file with `frazil decode`, or send such input to the dead letters by policy."
    )


class SchemaError(FrazilError):
    """The shape of the data, not the data."""


class UnsupportedSchemaChangeError(SchemaError):
    """The source's table changed in a way that cannot be followed."""

    code = "FRZ-SCH-01"
    meaning = (
        "A column changed its type or the key changed in a way that rows already written "
        "cannot follow."
    )
    remedy = (
        "Run `frazil resync TABLE` when it is a changelog that cannot follow its source; drop a "
        "mirror that cannot follow its changelog, and the next merge makes it again."
    )


class UnrepresentableValueError(SchemaError):
    """A value has no exact counterpart in the table's type."""

    code = "FRZ-SCH-02"
    meaning = (
        "The source holds a value that the column's Iceberg type cannot hold exactly, and the "
        "policy is to fail rather than change it."
    )
    remedy = "Set `on_unrepresentable: string` or `null` for that column, or declare another type."


class LakeError(FrazilError):
    """Something with the tables, their catalog or their files."""


class TableNotFoundError(LakeError):
    """The table, or its namespace, is not in the catalog."""

    code = "FRZ-LAK-01"
    meaning = "A table that must exist is not in the catalog."
    remedy = "Check `catalog` and the table's name; `frazil plan` shows what would be created."


class StorageError(LakeError):
    """Files cannot be read or written."""

    code = "FRZ-LAK-02"
    meaning = "The object store or file system failed to read or write a file."
    remedy = "Check the store's health and credentials with `frazil check`; the work is retried."

    # Whether the store said that a file is not there.
    is_gone = False
    # Whether it is there, and larger than what was to be read.
    is_too_large = False


class CatalogError(LakeError):
    """The catalog does not answer, or answers with a failure."""

    code = "FRZ-LAK-03"
    meaning = (
        "The catalog could not be reached, or refused a request for a reason other than a conflict."
    )
    remedy = "Check `catalog.uri` and its credentials with `frazil check`; the work is retried."


class WriteFailedError(LakeError):
    """A task could not finish its files."""

    code = "FRZ-LAK-04"
    meaning = (
        "A Spark task failed while writing files; nothing was committed, and the files are "
        "left to maintenance."
    )
    remedy = "The batch is tried again; if it repeats, see the cause logged with it."

    # Whether a task died as tasks do that have too little memory: others may have been the cause.
    lacked_memory = False


class CommitConflictError(LakeError):
    """Another writer committed first."""

    code = "FRZ-LAK-05"
    meaning = "The table moved between planning and committing, so the catalog refused the commit."
    remedy = "Nothing: the work is planned again on the new state."


class CommitUnknownError(LakeError):
    """The commit was sent and no answer came back."""

    code = "FRZ-LAK-06"
    meaning = (
        "It is not known whether a commit landed; the table is asked before anything else is done."
    )
    remedy = "Nothing: the next start looks for the commit. If the catalog stays away, restore it."


class FencedError(LakeError):
    """Another process does this work now."""

    code = "FRZ-LAK-07"
    meaning = (
        "The table's marker was moved by another process, so this one must not write any more."
    )
    remedy = "Make sure that only one instance runs per pipeline, then start again if needed."


class TableReplacedError(LakeError):
    """The table under this name is another one."""

    code = "FRZ-LAK-08"
    meaning = (
        "The table was dropped and created again: its UUID is not the one known to the pipeline."
    )
    remedy = "Run `frazil resync TABLE`, or `merge_table(..., rebuild=True)`, or restore the table."


class MarkerLostError(LakeError):
    """The table has rows but not our marker."""

    code = "FRZ-LAK-09"
    meaning = "The table holds rows but no marker of ours, so it is not known what they contain."
    remedy = (
        "Run `frazil position set TABLE --role merge` for a mirror whose snapshots still show how "
        "far it was merged, else `frazil resync TABLE`, or `merge_table(..., rebuild=True)`. A "
        "table of another owner is never taken over: give the mirror another name."
    )


class RolledBackError(LakeError):
    """The table was set back behind our last commit, or it cannot be proven that it was not."""

    code = "FRZ-LAK-10"
    meaning = (
        "The snapshot that wrote the marker is not an ancestor of the table's current state, or "
        "so much was expired that this cannot be proven any more."
    )
    remedy = (
        "`frazil position show TABLE` shows the current state. Roll forward again, or run "
        "`frazil position set TABLE --role merge` to continue a mirror from the state that is "
        "there. `frazil resync TABLE` and `merge_table(..., rebuild=True)` build it again."
    )

    # False where so much was expired that it cannot be proven.
    is_proven = True


class OutOfOrderError(LakeError):
    """A change arrived after newer ones had been merged."""

    code = "FRZ-LAK-11"
    meaning = "The changelog promises source order, but holds a change older than what is merged."
    remedy = "Set `order: per_key` for this table."


class DuplicateKeyError(LakeError):
    """Two live rows have one key, or two different changes have one sequence."""

    code = "FRZ-LAK-12"
    meaning = "A key that must be unique is not: there is no right answer to which row is newest."
    remedy = (
        "Run `frazil resync TABLE`, or `merge_table(..., rebuild=True)`: it builds the mirror "
        "again. Changes with one sequence are corrected first, where they come from."
    )


class NullKeyError(LakeError):
    """A key column holds a null."""

    code = "FRZ-LAK-13"
    meaning = "Rows have a null in a key column and cannot be addressed."
    remedy = "Choose another key in `tables[].key`, or correct the changes and build it again."


class MissingImageError(LakeError):
    """A change leaves columns out and the row they would come from is not there."""

    code = "FRZ-LAK-14"
    meaning = (
        "An update did not carry all columns, and no earlier state of the row was found to "
        "complete it."
    )
    remedy = "Run `frazil resync TABLE`, or `merge_table(..., rebuild=True)`."


class EqualityDeletesError(LakeError):
    """The mirror carries equality deletes."""

    code = "FRZ-LAK-15"
    meaning = "Another engine left equality deletes on the mirror; they cannot be addressed by row."
    remedy = "Compact the table with the command in the message, then run again."


class ForeignChangeError(LakeError):
    """Rows were changed in a table that is append-only."""

    code = "FRZ-LAK-16"
    meaning = (
        "A changelog's history holds a snapshot that removed or replaced rows; what it changed "
        "cannot be known from the rows that are left."
    )
    remedy = (
        "Roll the changelog back to before that snapshot, or run `frazil resync TABLE`: it reads "
        "the source again, or takes the changelog as it is now where frazil has no source. With "
        "the library that is `merge_table(..., rebuild=True)`."
    )


class IndexError_(FrazilError):  # noqa: N801, N818 - the published name; the builtin has the plain one
    """The key index. Losing it costs time, never a row."""


class StaleIndexError(IndexError_):
    """The index describes an older state of the table."""

    code = "FRZ-IDX-01"
    meaning = "The key index was written for another snapshot than the table's current one."
    remedy = "Nothing: the index is repaired from the files that changed."


class DamagedIndexError(IndexError_):
    """The index cannot be read."""

    code = "FRZ-IDX-02"
    meaning = "A file of the key index is missing or fails its checksum."
    remedy = "Nothing: the index is rebuilt from the table. `frazil index rebuild` does it now."


class LeaseLostError(FrazilError):
    """Our lease on a piece of work has ended."""

    code = "FRZ-LSE-01"
    meaning = (
        "The lease on a partition or table expired or was taken over; nothing more is committed."
    )
    remedy = "Nothing: another worker goes on. If leases are lost often, raise `lease_ttl`."


class ShutdownRequested(FrazilError):  # noqa: N818 - a request, not a fault
    """The process was asked to stop."""

    code = "FRZ-OPS-01"
    meaning = "The process was asked to stop and left its work at a clean point."
    remedy = "Nothing: start it again when you like."


class RuntimeMissingError(FrazilError):
    """This machine lacks something to run on."""

    code = "FRZ-OPS-02"
    meaning = "Java, Spark's jars or an optional package is missing or of the wrong version."
    remedy = "Do what the message says; `frazil setup` brings Java and jars."


class ServiceError(FrazilError):
    """An embedded service did not start or died."""

    code = "FRZ-OPS-03"
    meaning = "One of the demo's child processes did not become ready, or ended by itself."
    remedy = "Read the log file named in the message."


class DefectError(FrazilError):
    """An unexpected exception: any that is not one of these."""

    code = "FRZ-OPS-04"
    meaning = (
        "An exception that frazil does not know was raised, on the driver or in a Spark task: a "
        "defect in frazil. The message has its type, its location and a reference, and no row."
    )
    remedy = (
        "Report it with its reference, which the log and the error report have too. A restart or "
        "`frazil resync TABLE` tries the table again."
    )


def leaves(root: type[FrazilError] = FrazilError) -> tuple[type[FrazilError], ...]:
    """Every error that can be raised, in the order of the tree above."""
    children = root.__subclasses__()
    if not children:
        return (root,)
    return tuple(leaf for child in children for leaf in leaves(child))
