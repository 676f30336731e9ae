"""Random histories of one table's columns, with everything a message or a catalog would show."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from frazil.codec.pgoutput.messages import Relation, RelationColumn, ReplicaIdentity
from frazil.model.postgres.facts import GeneratedKind
from frazil.sources.postgres.tables.shape import KnownShape, ShapeColumn
from tests.support.postgres.views import INT, TEXT, attribute, view

if TYPE_CHECKING:
    from random import Random

    from frazil.sources.postgres.tables.catalog_view import CatalogView

# Few, so that columns get each other's names and types.
NAMES = ("a", "b", "c", "d")
TYPES = (INT, TEXT)
# Between two steps there may be transactions that only read and write.
XID_STEP = 10


@dataclass(frozen=True)
class Col:
    name: str
    type_oid: int
    changed_by: int
    computed: bool = False


@dataclass(frozen=True)
class Moment:
    """The table after a step; numbers of columns that are gone have who dropped them."""

    columns: dict[int, Col]
    gone: dict[int, int] = field(default_factory=dict)

    @property
    def highest(self) -> int:
        return max((0, *self.columns, *self.gone))

    @property
    def sent(self) -> dict[int, Col]:
        return {number: each for number, each in self.columns.items() if not each.computed}

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(self.sent)

    def relation(self) -> Relation:
        columns = tuple(
            RelationColumn(each.name, each.type_oid, -1, is_key=False)
            for each in self.sent.values()
        )
        return Relation(1, "shop", "orders", ReplicaIdentity.DEFAULT, columns)

    def known(self) -> KnownShape:
        columns = tuple(
            ShapeColumn(number, each.name, each.type_oid, -1) for number, each in self.sent.items()
        )
        hidden = tuple(number for number in self.columns if number not in self.sent)
        return KnownShape(columns=columns, key=(), highest=self.highest, hidden=hidden)

    def catalog(self) -> CatalogView:
        attributes = [
            attribute(
                number,
                each.name,
                each.type_oid,
                generated=GeneratedKind.STORED if each.computed else GeneratedKind.NO,
            )
            for number, each in self.columns.items()
        ]
        seen = view(*attributes)
        changes = {number: each.changed_by for number, each in self.columns.items()} | self.gone
        published = replace(seen.published, columns=tuple(each.name for each in self.sent.values()))
        table = replace(
            seen.table,
            attributes=tuple(attributes),
            dropped_numbers=tuple(sorted(self.gone)),
            changed_by=tuple(sorted(changes.items())),
        )
        return replace(seen, table=table, published=published)


def history(random: Random, steps: int) -> list[Moment]:
    """The table at first and after each step."""
    names = random.sample(NAMES, random.randint(1, 3))
    first = {n: Col(name, random.choice(TYPES), 3) for n, name in enumerate(names, 1)}
    moments = [Moment(first)]
    while len(moments) <= steps:
        step = random.choices(_STEPS, _WEIGHTS)[0]
        moments.append(step(random, moments[-1], XID_STEP * len(moments)))
    return moments


def xid_at(moment: int) -> int:
    """A transaction that began between this step and the next."""
    return XID_STEP * moment + XID_STEP // 2


def _free(random: Random, moment: Moment) -> str:
    taken = {each.name for each in moment.columns.values()}
    free = [name for name in NAMES if name not in taken]
    return random.choice(free) if free else f"n{moment.highest}"


def _add(random: Random, moment: Moment, xid: int, *, computed: bool = False) -> Moment:
    new = Col(_free(random, moment), random.choice(TYPES), xid, computed)
    return replace(moment, columns={**moment.columns, moment.highest + 1: new})


def _add_computed(random: Random, moment: Moment, xid: int) -> Moment:
    return _add(random, moment, xid, computed=True)


def _drop(random: Random, moment: Moment, xid: int) -> Moment:
    if len(moment.sent) < 2:
        return _add(random, moment, xid)
    doomed = random.choice(list(moment.columns))
    left = {number: each for number, each in moment.columns.items() if number != doomed}
    return Moment(left, {**moment.gone, doomed: xid})


def _change(random: Random, moment: Moment, xid: int, **changed: object) -> Moment:
    number = random.choice(list(moment.columns))
    made = replace(moment.columns[number], changed_by=xid, **changed)  # type: ignore[arg-type]
    return replace(moment, columns={**moment.columns, number: made})


def _rename(random: Random, moment: Moment, xid: int) -> Moment:
    return _change(random, moment, xid, name=_free(random, moment))


def _retype(random: Random, moment: Moment, xid: int) -> Moment:
    return _change(random, moment, xid, type_oid=random.choice(TYPES))


def _both(random: Random, moment: Moment, xid: int) -> Moment:
    return _change(random, moment, xid, name=_free(random, moment), type_oid=random.choice(TYPES))


def _swap(random: Random, moment: Moment, xid: int) -> Moment:
    if len(moment.columns) < 2:
        return _add(random, moment, xid)
    one, other = random.sample(list(moment.columns), 2)
    made = {
        one: replace(moment.columns[one], name=moment.columns[other].name, changed_by=xid),
        other: replace(moment.columns[other], name=moment.columns[one].name, changed_by=xid),
    }
    return replace(moment, columns=moment.columns | made)


def _again(random: Random, moment: Moment, xid: int) -> Moment:
    """Dropped and added in one statement, under the same name."""
    number = random.choice(list(moment.sent))
    new = replace(moment.columns[number], type_oid=random.choice(TYPES), changed_by=xid)
    left = {each: column for each, column in moment.columns.items() if each != number}
    columns = {**left, moment.highest + 1: new}
    return Moment(columns, {**moment.gone, number: xid})


_STEPS = (_add, _add_computed, _drop, _rename, _retype, _both, _swap, _again)
_WEIGHTS = (6, 1, 4, 4, 2, 2, 1, 2)
# The steps after which what was known a step before and the catalog leave no doubt.
_SINGLE = (_add, _add_computed, _drop, _rename, _retype, _both, _swap)


def plain_history(random: Random, steps: int) -> list[Moment]:
    """The same, but nothing is dropped and added in one step."""
    moments = [history(random, 0)[0]]
    while len(moments) <= steps:
        moments.append(random.choice(_SINGLE)(random, moments[-1], XID_STEP * len(moments)))
    return moments
