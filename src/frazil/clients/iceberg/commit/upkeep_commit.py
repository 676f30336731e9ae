"""Commits that change no row that anybody reads, and move no marker.

Staged and compared like every commit of ours (see ``strict_commit.py``). One that did not land is
not looked for: facts are loaded again, and a job that is done is not planned again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from frazil.clients.iceberg.gateway import FileIntake
from frazil.clients.java_errors import java_classes, translate
from frazil.errors import CommitConflictError
from frazil.hooks import Failpoint, failpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.clients.iceberg.gateway import IcebergGateway, JavaObject

_CONFLICTS = (".CommitFailedException", ".ValidationException", ".CommitStateUnknownException")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRemoval:
    """Whole data files to remove, described by Iceberg's own JSON; valid on any head."""

    removed: tuple[str, ...]
    summary: Mapping[str, str]
    properties: Mapping[str, str] = field(default_factory=dict)


class UpkeepCommitter:
    """Commits for the upkeep of one table."""

    def __init__(self, gateway: IcebergGateway, table: JavaObject, name: str) -> None:
        self._gateway = gateway
        self._table = table
        self._name = name

    def remove_files(self, removal: FileRemoval) -> None:
        """One attempt; raises CommitConflictError when the table has changed meanwhile."""
        try:
            transaction = self._table.newTransaction()
            base = transaction.table().operations().current()
            update = transaction.newDelete()
            specs = transaction.table().specs()
            self._gateway.apply_files(update, FileIntake.REMOVE, removal.removed, specs)
            update.validateFilesExist()
            for key, value in removal.summary.items():
                update.set(key, value)
            update.commit()
            staged = transaction.table().operations().current()
            count = staged.currentSnapshot().summary().get("deleted-data-files")
            if count != str(len(removal.removed)):
                message = f"{count} files would go, planned were {len(removal.removed)}."
                raise CommitConflictError(message, table=self._name)
            builder = self._gateway.table_metadata.buildFrom(staged)
            new = builder.setProperties(dict(removal.properties)).build()
            failpoint(Failpoint.MAINTAIN_STAGED)
            self._table.operations().commit(base, new)
        except Py4JError as error:
            raise self._refused(error) from error
        failpoint(Failpoint.MAINTAIN_COMMITTED)

    def _refused(self, error: Py4JError) -> Exception:
        if any(name.endswith(_CONFLICTS) for name in java_classes(error)):
            message = "another writer was faster, or its files are not there any more."
            return CommitConflictError(message, table=self._name)
        return translate(error, table=self._name, doing="removing files from the table")
