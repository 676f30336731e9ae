"""Random changes of a small database, by an honest server or by one that sends anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from frazil.codec.pgoutput.messages import (
    Begin,
    Commit,
    Delete,
    ImageKind,
    Insert,
    LogicalMessage,
    Message,
    OldImage,
    Origin,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    Truncate,
    TruncateOption,
    TypeName,
    Update,
    Value,
)
from frazil.model.postgres.types import ColumnPlan, PostgresType, TypeKind, plan_column
from frazil.model.schema.types import Primitive
from frazil.model.source_table import SourceColumn
from frazil.sources.postgres.stream.segment import ShapeReading, TableReading
from tests.support.pgoutput.frames import NULL, UNCHANGED, text
from tests.support.pgoutput.histories import SAMPLE_TEXTS

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

INT4, INT8, TEXT, NUMERIC, BYTEA, UUID, TEXTS = 23, 20, 25, 1700, 17, 2950, 1009
_MONEY = ((6 << 16) | 2) + 4
_NAMES = {
    INT4: "int4",
    INT8: "int8",
    TEXT: "text",
    NUMERIC: "numeric",
    BYTEA: "bytea",
    UUID: "uuid",
    TEXTS: "_text",
}
_UUIDS = tuple(f"0000000{n}-0000-4000-8000-00000000000{n}" for n in range(3))
_TEXTS: Mapping[int, tuple[str, ...]] = {
    INT4: ("0", "1", "2", "-7"),
    INT8: ("1", "2", "3"),
    TEXT: SAMPLE_TEXTS,
    NUMERIC: ("0.00", "12.30", "-9999.99"),
    BYTEA: (r"\x", r"\x00ff"),
    UUID: _UUIDS,
    TEXTS: ("{}", "{a,NULL}", '{"b c"}'),
}


@dataclass(frozen=True)
class ShapedColumn:
    """A column of a shape; its plan may have a wider type than its own."""

    number: int
    name: str
    oid: int
    is_key: bool = False
    plan_as: Primitive | None = None

    @property
    def plan(self) -> ColumnPlan:
        modifier = _MONEY if self.oid == NUMERIC else -1
        type_ = PostgresType(self.oid, _NAMES[self.oid], modifier=modifier)
        if self.oid == TEXTS:
            type_ = replace(type_, kind=TypeKind.ARRAY, inner=PostgresType(TEXT, "text"))
        return plan_column(self.name, type_, declared=self.plan_as)


def shape(
    oid: int, *columns: ShapedColumn, identity: ReplicaIdentity = ReplicaIdentity.DEFAULT
) -> ShapeReading:
    is_full = identity is ReplicaIdentity.FULL
    described = tuple(
        RelationColumn(
            each.name, each.oid, _MONEY if each.oid == NUMERIC else -1, each.is_key or is_full
        )
        for each in columns
    )
    return ShapeReading(
        relation=Relation(oid, "public", f"t{oid}", identity, described),
        numbers=tuple(each.number for each in columns),
        plans=tuple(each.plan for each in columns),
    )


def reading(
    name: str, *shapes: ShapeReading, key: tuple[int, ...] = (), after: int = 0
) -> TableReading:
    """A table with every column that one of its shapes has."""
    plans: dict[int, ColumnPlan] = {}
    for each in shapes:
        plans |= dict(zip(each.numbers, each.plans, strict=True))
    columns = tuple(
        SourceColumn(number=number, name=plan.name, type=plan.type)
        for number, plan in sorted(plans.items())
    )
    oid = shapes[0].relation.oid
    return TableReading(name=name, oid=oid, columns=columns, key=key, shapes=shapes, after=after)


_ID = ShapedColumn(1, "id", INT8, is_key=True)
_NOTE = ShapedColumn(2, "note", TEXT)
_SMALL = ShapedColumn(3, "n", INT4, plan_as=Primitive.LONG)
_WIDE = ShapedColumn(3, "n", INT8)
_PRICE = ShapedColumn(4, "price", NUMERIC)
_CODE = ShapedColumn(1, "code", TEXT, is_key=True)
_MARK = ShapedColumn(2, "mark", UUID, is_key=True)
_BODY = ShapedColumn(5, "body", BYTEA)
_TAGS = ShapedColumn(6, "tags", TEXTS)

ORDERS = reading(
    "public.orders",
    shape(7, _ID, _NOTE, _SMALL),
    shape(7, _ID, _WIDE, _PRICE),
    shape(7, replace(_NOTE, name="remark"), _ID, _WIDE, _PRICE, identity=ReplicaIdentity.FULL),
    key=(1,),
)
CODES = reading(
    "public.codes",
    shape(8, _CODE, _MARK, _BODY),
    shape(8, _BODY, _MARK, _CODE, identity=ReplicaIdentity.FULL),
    key=(2, 1),
)
LOG = reading(
    "public.log",
    shape(9, _NOTE, _PRICE, identity=ReplicaIdentity.NOTHING),
    shape(9, _NOTE, _TAGS, identity=ReplicaIdentity.FULL),
)
READINGS = (ORDERS, CODES, LOG)
FOREIGN = shape(10, _ID, _NOTE)
# Shapes that no reading knows, or whose identity does not have the key.
STRANGE = (
    shape(7, _ID, ShapedColumn(9, "news", TEXT)),
    shape(8, _CODE, replace(_MARK, is_key=False), _BODY),
)
BAD_SHAPE_READINGS = (
    ORDERS,
    replace(CODES, shapes=(*CODES.shapes, STRANGE[1])),
    LOG,
)


class ChangeHistories:
    """Makes transactions; without ``is_honest`` also what no server should send."""

    def __init__(self, chance: random.Random, *, is_honest: bool) -> None:
        self._chance = chance
        self._is_honest = is_honest
        shapes = [*ORDERS.shapes, *CODES.shapes, *LOG.shapes, FOREIGN]
        self._shapes = shapes if is_honest else [*shapes, *STRANGE]
        self.current: dict[int, ShapeReading] = {}
        self._lsn = 1 << 32

    def history(self) -> list[Message]:
        messages = self.descriptions()
        for _ in range(self._chance.randrange(6)):
            messages += self.transaction()
        return messages

    def descriptions(self) -> list[Message]:
        return [self._shape() for _ in range(4)]

    def transaction(self) -> list[Message]:
        self._lsn += self._chance.randrange(1, 1 << 34)
        at = self._chance.randrange(1 << 50)
        inside: list[Message] = []
        for _ in range(self._chance.randrange(12)):
            inside += self._inside()
        return [Begin(self._lsn, at, 5), *inside, Commit(self._lsn, self._lsn + 40, at)]

    def _inside(self) -> list[Message]:
        if self._chance.random() < 0.75:
            return [self._change()]
        match self._chance.randrange(5):
            case 0 | 1:
                return [self._shape()]
            case 2:
                oids = self._chance.sample((7, 8, 9, 10), self._chance.randrange(1, 5))
                return [Truncate(tuple(oids), TruncateOption(0))]
            case 3:
                return [TypeName(17, "s", "mood"), Origin(self._lsn, "elsewhere")]
            case _:
                return [LogicalMessage(self._lsn, "p", b"content", is_transactional=True)]

    def _shape(self) -> Relation:
        found = self._chance.choice(self._shapes)
        self.current[found.relation.oid] = found
        return found.relation

    def _change(self) -> Insert | Update | Delete:
        found = self._chance.choice(list(self.current.values()))
        oid = found.relation.oid
        new = self._row(found)
        kind = self._chance.randrange(4)
        if kind == 0:
            return Insert(oid, new if self._is_honest else self._worn(found, new))
        old = self._old(found, new)
        if kind == 1:
            return Delete(oid, old or OldImage(ImageKind.OLD_KEY, self._key_of(found, new)))
        return Update(oid, old, self._worn(found, new, old))

    def _row(self, found: ShapeReading) -> tuple[Value, ...]:
        return tuple(
            self._value(column.type_oid, may_be_null=number not in _keys_of(found))
            for column, number in zip(found.relation.columns, found.numbers, strict=True)
        )

    def _value(self, oid: int, *, may_be_null: bool) -> Value:
        if may_be_null and self._chance.random() < 0.2:
            return NULL
        if not self._is_honest and self._chance.random() < 0.01:
            return text("NaN")
        return text(self._chance.choice(_TEXTS[oid]))

    def _old(self, found: ShapeReading, new: tuple[Value, ...]) -> OldImage | None:
        """An old row that may have the key of the new one, as far as the identity has it."""
        other = self._row(found)
        old = tuple(
            now if self._chance.random() < 0.5 else was for now, was in zip(new, other, strict=True)
        )
        if found.relation.replica_identity is ReplicaIdentity.FULL:
            is_key = not self._is_honest and self._chance.random() < 0.1
            return OldImage(ImageKind.OLD_KEY if is_key else ImageKind.OLD_ROW, old)
        if self._chance.random() < 0.4:
            return None
        if not self._is_honest and self._chance.random() < 0.1:
            return OldImage(ImageKind.OLD_ROW, old)
        return OldImage(ImageKind.OLD_KEY, self._key_of(found, old))

    def _key_of(self, found: ShapeReading, row: tuple[Value, ...]) -> tuple[Value, ...]:
        columns = found.relation.columns
        other = NULL if self._is_honest else self._chance.choice((NULL, UNCHANGED, text("no")))
        return tuple(
            value if column.is_key else other for column, value in zip(columns, row, strict=True)
        )

    def _worn(
        self, found: ShapeReading, new: tuple[Value, ...], old: OldImage | None = None
    ) -> tuple[Value, ...]:
        """A new row of which some columns are not sent, a key's only if the old image has it."""
        keys = _keys_of(found)
        return tuple(
            UNCHANGED
            if self._chance.random() < 0.2
            and (old is not None or number not in keys or not self._is_honest)
            else value
            for number, value in zip(found.numbers, new, strict=True)
        )


def _keys_of(found: ShapeReading) -> tuple[int, ...]:
    return next((each.key for each in READINGS if each.oid == found.relation.oid), ())
