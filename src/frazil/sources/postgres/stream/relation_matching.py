"""Which columns a relation message describes: it has names and types, and no numbers.

What was known is older than the message, and the catalog, by the time it is read, may be newer.
Names and types prove nothing between the three: columns swap names, go, and come back as others.
What does not lie is how Postgres numbers columns:

* a number is never given twice, and a new column gets a higher one than all before it;
* the catalog keeps the numbers of columns that are gone;
* columns are sent in the order of their numbers.

So a known column that the catalog still has was there in between, and one that is new since has a
number above all that were given; of the new ones up to the youngest that existed, those that the
catalog still has were all there. What is left open is which of the columns that went since were
there still. If the count of columns leaves one answer, that is the answer, whatever the names. One
thing is assumed: that no column was created as a computed one and became a plain one since what is
known.

=====================================  ===========  ==================  ======================
at the source                          known        the message         the catalog, later
=====================================  ===========  ==================  ======================
nothing                                1a 2b        a b: 1 2            1a 2b
a renamed, then renamed again          1a 2b        c b: 1 2            1d 2b
two names swapped, types changed       1a 2b        b a: 1 2            1b 2a
b dropped                              1a 2b        a: 1                1a (2)
b dropped only after the message       1a 2b        a b: 1 2            1a (2)
c added                                1a 2b        a b c: 1 2 3        1a 2b 3c
c added, d added after the message     1a 2b        a b c: 1 2 3        1a 2b 3c 4d
x added, dropped after the message     1a 2b        a b x: 1 2 3        1a 2b (3)
x added and dropped, then y            1a 2b        a b y: open [1]     1a 2b (3) 4y
b dropped, c added: or b renamed to    1a 2b        a c: open [1]       1a (2) 3c
c, dropped and added later?
b dropped, c added, after the message  1a 2b        a b: open [1]       1a (2) 3c
b dropped and added again: before or   1a 2b        a b: refused        1a (2) 3b
after the message?
a computed column became a plain one   1a 3c (2 g)  a g c: refused      1a 2g 3c
=====================================  ===========  ==================  ======================

[1] Refused, because more than one answer is possible. With the transaction that the message came
in, there is an answer where the catalog's rows and the message agree on what came first. Each row
is signed by the transaction that changed it last. A row signed by an older one is as it was when
the message was sent: the column was there, under this name and type, or was gone. A known column
that a younger one dropped was there still, and is as it was known. If that makes as many columns as
the message has, and the message shows all of them so, that is the answer.

Such an answer is likely and not certain, unlike all others. Transactions have their age from their
first write, to whatever table: one that is older may change a table, or write to it, after a
younger one did. For the answer to be wrong, names and types must agree by accident as well: a
column was dropped and one of the same name and type added, and the table changed once more, without
a check in between. Where the first step alone would do, there is no answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.command import command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.codec.pgoutput.messages import Relation, RelationColumn
    from frazil.model.postgres.facts import Attribute
    from frazil.sources.postgres.tables.catalog_view import CatalogView
    from frazil.sources.postgres.tables.shape import KnownShape, ShapeColumn

# Numbers of transactions are compared on a circle of 32 bits.
_XID_CIRCLE = 1 << 32
# Numbers below it belong to what was always there.
_FIRST_NORMAL_XID = 3


def match_relation(
    relation: Relation, known: KnownShape, view: CatalogView | None, *, xid: int | None = None
) -> tuple[int, ...]:
    """The numbers of the columns, in the order of the message.

    ``known`` must have been so when the message was sent, or before; ``view`` is of the message's
    time or later, None if the table is no longer there or no longer published. Without ``xid``
    every answer follows from the numbers; with it, the transaction that the message came in, there
    are more, and those rest on the age of transactions. Raises UnsupportedSchemaChangeError where
    more than one answer is possible, or none.
    """
    name = f"{relation.namespace}.{relation.name}"
    if view is None:
        raise _refused("the table is no longer there, or no longer published", name)
    _refuse_contradictions(known, view)
    images = _images(len(relation.columns), known, view)
    if len(images) == 1:
        (image,) = images
        _refuse_unlikely(relation, image, known, view)
        return image
    signed = None if xid is None else _signed_image(relation, known, view, xid)
    if signed is not None:
        return signed
    if not images:
        what = "its columns do not follow from those that are known and those of the catalog"
        raise _refused(what, view.name)
    what = (
        "columns were dropped and others added or renamed, and it is not known which of them "
        f"are meant by {_disputed(relation, images)}"
    )
    raise _refused(what, view.name)


def _refuse_contradictions(known: KnownShape, view: CatalogView) -> None:
    sent = {each.number: each.name for each in view.sent}
    lost = set(known.numbers) - sent.keys() - set(view.table.dropped_numbers)
    if lost:
        names = [each.name for each in known.columns if each.number in lost]
        what = f"columns are there and no longer sent: {', '.join(names)}"
        raise _refused(what, view.name)
    old = [
        name
        for number, name in sent.items()
        if number <= known.highest and number not in known.numbers
    ]
    if old:
        what = (
            f"columns were not sent until now, and older rows have values in them: {', '.join(old)}"
        )
        raise _refused(what, view.name)


def _images(count: int, known: KnownShape, view: CatalogView) -> frozenset[tuple[int, ...]]:
    """The sets of so many numbers that may be meant; of more than two, two.

    They are tried for each number that may have been the highest then.
    """
    highest = known.highest
    sent = [each.number for each in view.sent]
    maybe_old = {*known.numbers, *known.hidden}
    gone = [each for each in view.table.dropped_numbers if each > highest or each in maybe_old]
    given = {each.number for each in view.table.attributes}.union(view.table.dropped_numbers)
    found: set[tuple[int, ...]] = set()
    for youngest in sorted({highest, *(each for each in given if each > highest)}):
        there = [each for each in sent if each <= youngest]
        open_ = [each for each in gone if each <= youngest]
        lacking = count - len(there)
        if 0 <= lacking <= len(open_):
            found |= {_with(there, open_[:lacking]), _with(there, open_[len(open_) - lacking :])}
    return frozenset(found)


def _with(there: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted((*there, *others)))


def _refuse_unlikely(
    relation: Relation, image: tuple[int, ...], known: KnownShape, view: CatalogView
) -> None:
    """Check again where an assumption may have failed.

    A column that was computed when it was created and is plain by now was not sent then, although
    the catalog shows it like any other. Then a new column is under the number of another.
    """
    hidden = [
        column.name
        for number, column in zip(image, relation.columns, strict=True)
        if number in known.hidden
    ]
    if hidden:
        what = f"columns were not sent until now: {', '.join(hidden)}"
        raise _refused(what, view.name)
    new = {each.name: each.number for each in view.sent if each.number > known.highest}
    strange = [
        column.name
        for number, column in zip(image, relation.columns, strict=True)
        if number > known.highest and new.get(column.name, number) != number
    ]
    if strange:
        what = f"new columns have exchanged their names: {', '.join(strange)}"
        raise _refused(what, view.name)


def _signed_image(
    relation: Relation, known: KnownShape, view: CatalogView, xid: int
) -> tuple[int, ...] | None:
    """The numbers by the age of what the catalog shows; None if that does not decide."""
    older = {number for number, each in view.table.changed_by if _is_older(each, xid)}
    same = {number for number, each in view.table.changed_by if each == xid}
    shown = {each.number: _described(each) for each in view.sent}
    was = {each.number: _described(each) for each in known.columns}
    # Those that the catalog shows as they were, and those that went since.
    image = [each for each in shown if each in was or each in older]
    image += [each for each in was if each not in shown and each not in older]
    if same or not view.table.changed_by or len(image) != len(relation.columns):
        return None
    described = dict(zip(sorted(image), map(_described, relation.columns), strict=True))
    agrees = all(
        described[each] == (shown[each] if each in shown else was[each])
        for each in image
        if each in older or each not in shown
    )
    # What the other side shows just so may be the truth as well.
    rivals = [each for each in (shown, was) if sorted(each) != sorted(image)]
    if not agrees or any(list(described.values()) == list(each.values()) for each in rivals):
        return None
    return tuple(sorted(image))


def _is_older(one: int, other: int) -> bool:
    return one < _FIRST_NORMAL_XID or 0 < (other - one) % _XID_CIRCLE < _XID_CIRCLE // 2


def _described(column: RelationColumn | ShapeColumn | Attribute) -> tuple[str, int, int]:
    """What a message says of a column."""
    return column.name, column.type_oid, column.type_modifier


def _disputed(relation: Relation, images: frozenset[tuple[int, ...]]) -> str:
    names = [
        column.name
        for index, column in enumerate(relation.columns)
        if len({image[index] for image in images}) > 1
    ]
    return ", ".join(names)


def _refused(what: str, table: str) -> UnsupportedSchemaChangeError:
    return UnsupportedSchemaChangeError(f"{what}.", table=table, next_step=command("resync", table))
