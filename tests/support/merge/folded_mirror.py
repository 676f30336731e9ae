"""What a mirror has after the outcomes of a fold are written to it, by the specification."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from frazil.merge.folding.fold import KeyAction, missing_images

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.merge.folding.fold import FoldResult

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Row(Generic[V]):
    """A row of a mirror."""

    values: Mapping[int, V]
    deleted: bool = field(default=False, kw_only=True)


def mirror_after(mirror: Mapping[K, Row[V]], outcomes: FoldResult[K, V]) -> dict[K, Row[V]]:
    """The mirror after these outcomes are written; missing columns come from the given one.

    Raises MissingImageError if a row they would come from is missing.
    """
    below = {} if outcomes.truncated is not None else mirror
    after = dict(below)
    orphans = 0
    for key, outcome in outcomes.by_key.items():
        found = below.get(outcome.source) if outcome.source is not None else None
        if outcome.kind is KeyAction.DELETE:
            after.pop(key, None)
        elif found is not None or outcome.source is None:
            kept = {id_: found.values[id_] for id_ in outcome.missing} if found else {}
            marked = outcome.kind is KeyAction.SOFT_DELETE
            after[key] = Row({**kept, **outcome.values}, deleted=marked)
        elif outcome.kind is KeyAction.UPSERT:
            orphans += 1
    if orphans:
        raise missing_images(orphans)
    return after
