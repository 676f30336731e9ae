"""How far a history is loaded, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from frazil.clients.iceberg.read.table_metadata import SnapshotFacts
from frazil.clients.iceberg.table import TableVersion
from frazil.model.table_facts import SnapshotOperation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from frazil.clients.iceberg.read.table_metadata import TableReader


@dataclass
class CountingReader:
    """Snapshots 1 to ``newest``, the oldest of which may be expired; counts what is loaded."""

    newest: int
    oldest: int = 1
    name: str = "a.t"
    loaded: list[int] = field(default_factory=list)
    loaded_all: int = 0

    def iter_ancestry(self, _metadata: object) -> Iterator[SnapshotFacts]:
        for number in range(self.newest, self.oldest - 1, -1):
            self.loaded.append(number)
            yield self._snapshot(number)

    def all_snapshots(self, _metadata: object) -> Mapping[int, SnapshotFacts]:
        self.loaded_all += 1
        return {each: self._snapshot(each) for each in range(self.oldest, self.newest + 1)}

    def _snapshot(self, number: int) -> SnapshotFacts:
        parent = number - 1 if number > 1 else None
        return SnapshotFacts(number, parent, number, SnapshotOperation.APPEND, {})


def history(reader: CountingReader, until: int | None = None) -> list[int]:
    version = TableVersion(
        gateway=None,  # type: ignore[arg-type] # not used
        table=None,
        metadata=None,
        reader=cast("TableReader", reader),
        committer=None,  # type: ignore[arg-type] # not used
    )
    return [each.id for each in version.history(until=until)]


def test_a_table_without_snapshots_has_no_history() -> None:
    assert history(CountingReader(0)) == []


def test_a_history_is_loaded_only_as_far_as_needed() -> None:
    reader = CountingReader(2000)
    assert history(reader, until=1998) == [2000, 1999, 1998]
    assert (reader.loaded, reader.loaded_all) == ([2000, 1999, 1998], 0)


@pytest.mark.parametrize("oldest", [1, 7])
def test_a_long_history_is_loaded_at_once(oldest: int) -> None:
    reader = CountingReader(2000, oldest)
    assert history(reader) == list(range(2000, oldest - 1, -1))
    assert (len(reader.loaded), reader.loaded_all) == (100, 1)
    assert history(reader, until=1500)[-1] == 1500


@pytest.mark.parametrize("newest", [99, 100, 101])
def test_a_history_about_as_long_as_the_first_batch_is_complete(newest: int) -> None:
    assert history(CountingReader(newest)) == list(range(newest, 0, -1))
