"""Which problems are tried again before they pause a table, and which partitions failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from frazil import errors
from frazil.clients.spark.memory_backoff import MemoryBackoff
from frazil.sources.protocol import Limit
from frazil.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from frazil.errors import FrazilError
    from frazil.ingest.batch_run import BatchResult
    from frazil.sources.protocol import PartitionFailure, TableProgress

_log = get_logger(__name__)


class RetryingTables:
    """Counts how often in a row something unforeseen was raised for each table."""

    def __init__(
        self, attempts: int, limit: Limit, may_pass: Callable[[FrazilError], bool]
    ) -> None:
        self._attempts = attempts
        self._may_pass = may_pass
        self._defects = Counter[str]()
        self._limit, self._memory = limit, MemoryBackoff()

    @property
    def limit(self) -> Limit:
        """The bounds of the next batch of changes: smaller ones after a task died of its size."""
        halvings = self._memory.halvings
        return Limit(max(1, self._limit.rows >> halvings), max(1, self._limit.bytes >> halvings))

    def count_failure(self, error: BaseException) -> None:
        """A batch of changes failed."""
        self._memory.count_failure(error)

    def forget(self) -> None:
        """An operator may have fixed what was wrong."""
        self._defects.clear()

    def count(self, result: BatchResult) -> None:
        """Take note of what a batch came to."""
        for name in result.committed:
            self._defects.pop(name, None)
        for name, error in result.failures.items():
            self._count(name, error)

    def may_pass(self, name: str, error: FrazilError) -> bool:
        """Whether this table is to be tried again."""
        if isinstance(error, errors.DefectError):
            return self._defects[name] < self._attempts
        return self._may_pass(error)

    def require_final(self, name: str, error: FrazilError) -> None:
        """Raise a defect that was met outside of a batch, as long as it may be tried again."""
        self._count(name, error)
        self._raise_passing(name, error)

    def require_final_of(self, result: BatchResult) -> None:
        """Raise a defect as long as it may be tried again; the other tables have committed."""
        self._memory.count_success()
        for name, error in result.failures.items():
            self._raise_passing(name, error)

    def require_progress(self, result: BatchResult) -> None:
        """Raise what may pass if nothing was committed: the caller waits and tries again."""
        passing = [each for name, each in result.failures.items() if self.may_pass(name, each)]
        if passing and not result.committed:
            raise _passing(passing[0])

    def _count(self, name: str, error: FrazilError) -> None:
        if isinstance(error, errors.DefectError):
            self._defects[name] += 1

    def _raise_passing(self, name: str, error: FrazilError) -> None:
        if isinstance(error, errors.DefectError) and self.may_pass(name, error):
            raise _passing(error)


class StoppedPartitions:
    """Partitions that failed, until they are tried again.

    By an operator, by another process, or by the source, once it has what was missing.

    Only in memory: a process that reads a partition again meets what stopped it again.
    """

    def __init__(self) -> None:
        self._failures: dict[str, PartitionFailure] = {}

    @property
    def errors(self) -> Mapping[str, FrazilError]:
        """Why each of them was stopped."""
        return {name: each.error for name, each in self._failures.items()}

    def forget(self) -> None:
        """An operator may have fixed what was wrong."""
        self._failures.clear()

    def resume(self, partitions: Iterable[str]) -> None:
        """What these waited for has come."""
        for name in partitions:
            if self._failures.pop(name, None) is not None:
                _log.info("partition goes on", partition=name)

    def take(self, failures: Iterable[PartitionFailure]) -> None:
        """Stop these, each where it failed first."""
        for each in failures:
            known = self._failures.get(each.partition)
            if known is None or each.offset < known.offset:
                self._failures[each.partition] = each
                _log.error(
                    "partition stopped",
                    table=each.table,
                    partition=each.partition,
                    position=each.offset,
                    code=each.error.code,
                    reason=each.error.reason,
                    remedy=each.error.next_step or each.error.remedy,
                )

    def offsets(self, tables: Mapping[str, TableProgress]) -> dict[str, int]:
        """Where they stopped; one that its table has passed meanwhile, by a resync, goes on."""
        for name, each in tuple(self._failures.items()):
            position = tables[each.table].position if each.table in tables else None
            if isinstance(position, Mapping) and position.get(name, each.offset) > each.offset:
                del self._failures[name]
        return {name: each.offset for name, each in self._failures.items()}


def _passing(error: FrazilError) -> FrazilError:
    # A defect of one table must not end the capture of all.
    if isinstance(error, errors.DefectError):
        return errors.WriteFailedError(error.message, table=error.table)
    return error
