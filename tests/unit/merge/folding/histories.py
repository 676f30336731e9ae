"""Histories of a small table, as a source would send them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, TypeVar

from hypothesis import strategies as st

from frazil.merge.folding.fold import Change, ChangeAction, TruncateChange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    AnyChange = Change[int, object] | TruncateChange

T = TypeVar("T")
KEY = 1
OTHERS = frozenset({2, 3, 4})
# Few keys, the first ones more often, so that changes meet.
KEYS = st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3, 4])
LEFT_OUT = st.frozensets(st.sampled_from(sorted(OTHERS)), max_size=3)


def upsert(
    key: int,
    sequence: int,
    *,
    unchanged: frozenset[int] | set[int] = frozenset(),
    previous: int | None = None,
    values: Mapping[int, object] | None = None,
) -> Change[int, object]:
    """A row whose values name their origin, unless others are given."""
    ids = OTHERS - unchanged
    sent = values if values is not None else {id_: f"{key}@{sequence}.{id_}" for id_ in ids}
    return Change(
        key=key,
        sequence=sequence,
        action=ChangeAction.UPSERT,
        values={KEY: key, **sent},
        unchanged=frozenset(unchanged),
        previous_key=previous,
    )


def delete(key: int, sequence: int) -> Change[int, object]:
    return Change(
        key=key, sequence=sequence, action=ChangeAction.DELETE, values={KEY: key}, unchanged=OTHERS
    )


def moved(
    old: int, new: int, sequence: int, *, unchanged: frozenset[int] | set[int] = frozenset()
) -> list[Change[int, object]]:
    """A key change: two rows, of two sequence numbers."""
    return [delete(old, sequence), upsert(new, sequence + 1, unchanged=unchanged, previous=old)]


@st.composite
def transactions(
    draw: st.DrawFn, *, truncates: bool = False, partial_moves: bool = True
) -> list[list[AnyChange]]:
    """Valid changes of a source: it leaves columns out only of existing rows."""
    verbs = ["insert", "update", "update", "update", "delete", "move", "move"]
    verbs += ["truncate"] if truncates else []
    steps = draw(
        st.lists(st.tuples(st.sampled_from(verbs), KEYS, KEYS, LEFT_OUT), min_size=1, max_size=20)
    )
    live: set[int] = set()
    numbers = count(1)
    return [
        list(_changes(verb, keys=(key, other), left_out=left_out, live=live, numbers=numbers))
        for verb, key, other, left_out in steps
        if partial_moves or verb != "move" or not left_out
    ]


def _changes(
    verb: str,
    *,
    keys: tuple[int, int],
    left_out: frozenset[int],
    live: set[int],
    numbers: Iterator[int],
) -> Iterator[AnyChange]:
    key, other = keys
    sequence = next(numbers)
    if verb == "truncate":
        live.clear()
        yield TruncateChange(sequence)
    elif verb == "delete":
        live.discard(key)
        yield delete(key, sequence)
    elif verb == "move" and key in live:
        live.discard(key)
        live.add(other)
        yield delete(key, sequence)
        yield upsert(other, next(numbers), unchanged=left_out, previous=key)
    else:
        partial = left_out if verb == "update" and key in live else frozenset()
        live.add(key)
        yield upsert(key, sequence, unchanged=partial)


@st.composite
def wild_changes(draw: st.DrawFn, *, links: bool = False) -> list[Change[int, object]]:
    """Anything at all, one change at most for each key and sequence."""
    bodies = st.tuples(KEYS, st.integers(0, 3), LEFT_OUT | st.just(frozenset()), st.none() | KEYS)
    drawn = draw(st.lists(bodies, max_size=15))
    return [
        delete(key, sequence)
        if verb == 0
        else upsert(
            key, sequence, unchanged=left_out, previous=previous if links and left_out else None
        )
        for sequence, (key, verb, left_out, previous) in enumerate(drawn, start=1)
    ]


@st.composite
def shuffled(draw: st.DrawFn, items: list[T]) -> list[T]:
    """The same in another order; by one seed, since a choice for each index would take long."""
    mixed = list(items)
    draw(st.randoms(use_true_random=True)).shuffle(mixed)
    return mixed
