"""The specification of the fold: reduces a batch of changes to one outcome per key.

Changes are replayed in the order of their sequence, without reading the mirror. Where a row keeps
values of the mirror, its outcome names the missing columns and the key whose row has them. The
implementations that run in Spark tasks are tested to be equivalent.

Identical changes of one key and sequence count once; different ones contradict each other. A
TRUNCATE precedes other changes of its sequence. Ignored deletes have no effect. The same rules
apply across merges: ``writing/mirror_rows.py`` compares with the result of earlier ones.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, TypeVar

from frazil.errors import DuplicateKeyError, MissingImageError
from frazil.model.policy import Deletes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from _typeshed import SupportsRichComparison as Sequence

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ChangeAction(Enum):
    """What a change does to the row of its key."""

    UPSERT = "upsert"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[K, V]):
    """One change of one key.

    Columns go by field id. Each is either in ``values``, where None is a null, or in ``unchanged``,
    because the source did not send it; a DELETE sends the key's columns and no others.
    ``previous_key`` is set on the INSERT half of a key change only.
    """

    key: K
    sequence: Sequence
    action: ChangeAction
    values: Mapping[int, V]
    unchanged: frozenset[int] = frozenset()
    previous_key: K | None = None


@dataclass(frozen=True, slots=True)
class TruncateChange:
    """The source emptied the table."""

    sequence: Sequence


class KeyAction(Enum):
    """The effect on a key: its row is written, removed, or kept and marked as deleted."""

    UPSERT = "upsert"
    DELETE = "delete"
    SOFT_DELETE = "soft delete"


@dataclass(frozen=True, slots=True)
class KeyOutcome(Generic[K, V]):
    """The outcome of one key.

    With a ``source`` it is based on the mirror's row under that key before this batch, and takes
    the ``missing`` columns from it. If the mirror has no such row, an upsert cannot be completed,
    and a soft delete has no effect.
    """

    kind: KeyAction
    values: Mapping[int, V] = field(default_factory=dict)
    missing: frozenset[int] = frozenset()
    source: K | None = None


@dataclass(frozen=True, slots=True)
class FoldResult(Generic[K, V]):
    """The outcomes of all keys that changed.

    ``truncated`` is the last TRUNCATE, if any: it removes all rows of the mirror first.
    """

    by_key: Mapping[K, KeyOutcome[K, V]]
    truncated: Sequence | None = None


def fold(
    changes: Iterable[Change[K, V] | TruncateChange], *, deletes: Deletes = Deletes.APPLY
) -> FoldResult[K, V]:
    """Replay the changes, given in any order: the last one of each key wins.

    With soft deletes a TRUNCATE must be given as DELETEs of the rows. Raises DuplicateKeyError
    for different changes of one key at one sequence, and MissingImageError for columns that were
    not sent of a row that was not there.
    """
    remaining, truncated = _after_truncate(changes, deletes)
    replay = _Replay[K, V](deletes, empty=truncated is not None)
    # Changes of one sequence all see the state before it, so that their order does not matter.
    for _, together in groupby(_each_once(remaining), key=attrgetter("sequence")):
        replay.apply(together)
    if replay.orphans:
        raise missing_images(len(replay.orphans))
    return FoldResult(replay.outcomes(), truncated)


class _Replay(Generic[K, V]):
    """The state of every key changed so far; a deleted key remembers its row."""

    def __init__(self, deletes: Deletes, *, empty: bool) -> None:
        self._deletes = deletes
        self._empty = empty
        self._nothing: KeyOutcome[K, V] = KeyOutcome(KeyAction.DELETE)
        self._rows: dict[K, KeyOutcome[K, V]] = {}
        self.orphans: set[K] = set()

    def apply(self, together: Iterable[Change[K, V]]) -> None:
        after = {change.key: self._after(change) for change in together}
        self.orphans |= {key for key, row in after.items() if row.missing and row.source is None}
        self._rows.update(after)

    def outcomes(self) -> dict[K, KeyOutcome[K, V]]:
        rows = self._rows.items()
        return {key: self._nothing if row.kind is KeyAction.DELETE else row for key, row in rows}

    def _after(self, change: Change[K, V]) -> KeyOutcome[K, V]:
        before = self._before(change)
        if change.action is ChangeAction.DELETE and self._deletes is Deletes.APPLY:
            return replace(before, kind=KeyAction.DELETE)
        kept = {id_: before.values[id_] for id_ in change.unchanged if id_ in before.values}
        values, missing = {**kept, **change.values}, change.unchanged - kept.keys()
        if change.action is ChangeAction.DELETE:
            return KeyOutcome(KeyAction.SOFT_DELETE, values, missing, before.source)
        return KeyOutcome(KeyAction.UPSERT, values, missing, before.source if missing else None)

    def _before(self, change: Change[K, V]) -> KeyOutcome[K, V]:
        """The row that the change keeps columns of."""
        if change.action is ChangeAction.UPSERT and not change.unchanged:
            return self._nothing
        if change.previous_key is not None:
            # The row before the DELETE half, which removed it under its old key.
            return self._row(change.previous_key)
        row = self._row(change.key)
        return self._nothing if row.kind is KeyAction.DELETE else row

    def _row(self, key: K) -> KeyOutcome[K, V]:
        if key in self._rows:
            return self._rows[key]
        return KeyOutcome(KeyAction.UPSERT, source=None if self._empty else key)


def _after_truncate(
    changes: Iterable[Change[K, V] | TruncateChange], deletes: Deletes
) -> tuple[list[Change[K, V]], Sequence | None]:
    """The changes since the last TRUNCATE in order, and its sequence."""
    # A TRUNCATE comes first at its sequence: it removes what is older.
    ordered = sorted(changes, key=lambda each: (each.sequence, isinstance(each, Change)))
    remaining: list[Change[K, V]] = []
    truncated: Sequence | None = None
    for each in ordered:
        if isinstance(each, Change):
            if each.action is ChangeAction.UPSERT or deletes is not Deletes.IGNORE:
                remaining.append(each)
        elif deletes is Deletes.SOFT:
            raise ValueError("with soft deletes, a TRUNCATE is given as DELETEs")
        elif deletes is Deletes.APPLY:
            remaining, truncated = [], each.sequence
    return remaining, truncated


def _each_once(changes: Iterable[Change[K, V]]) -> Iterable[Change[K, V]]:
    """The changes without repetitions, in the order given."""
    once: dict[tuple[K, Sequence], Change[K, V]] = {}
    clashes = {
        change.key
        for change in changes
        if once.setdefault((change.key, change.sequence), change) != change
    }
    if clashes:
        raise clashing_changes(len(clashes))
    return once.values()


def clashing_changes(keys: int) -> DuplicateKeyError:
    """The error for keys that have different changes with one sequence."""
    message = f"{keys} keys have different changes with one sequence."
    error = DuplicateKeyError(message)
    error.in_changes = True
    return error


def missing_images(keys: int) -> MissingImageError:
    """The error for keys whose rows cannot be completed."""
    message = f"{keys} keys have changes without all columns, and no row to take the others from."
    return MissingImageError(message)
