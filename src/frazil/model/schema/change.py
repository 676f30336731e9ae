"""From the schema a table has to the one it gets: whether it may, by field id and step by step."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.schema.types import Decimal, List, Map, Nested, Primitive, Schema, Struct

if TYPE_CHECKING:
    from frazil.model.schema.types import Field, Scalar, Type

# Readers of older versions know no defaults and would show nulls.
_DEFAULTS_SINCE = 3


@dataclass(frozen=True, slots=True)
class Add:
    """A new field in ``parent`` (``None``: a column), behind ``after`` (``None``: first)."""

    field: Field
    parent: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Drop:
    """The field goes, with everything inside it."""

    id: int


@dataclass(frozen=True, slots=True)
class Rename:
    """The field gets another name."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class Move:
    """The field goes behind its sibling ``after`` (``None``: first)."""

    id: int
    after: int | None


@dataclass(frozen=True, slots=True)
class Widen:
    """The field's type takes more values; what is written stays readable."""

    id: int
    old: Scalar
    new: Scalar


@dataclass(frozen=True, slots=True)
class MakeOptional:
    """The field may be null from now on."""

    id: int


Step = Add | Drop | Rename | Move | Widen | MakeOptional

_WIDENINGS = frozenset(
    {(Primitive.INT, Primitive.LONG), (Primitive.FLOAT, Primitive.DOUBLE)},
)


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """Steps to take in this order, in one commit; none when there is nothing to do."""

    steps: tuple[Step, ...]

    def __bool__(self) -> bool:
        return bool(self.steps)


def plan_schema_change(current: Schema, wanted: Schema) -> SchemaChange:
    """The steps from one schema to the other; descriptions are not compared.

    Raises UnsupportedSchemaChangeError with every difference that no step can bridge.
    """
    comparison = _Comparison({column.field.id for column in current.columns()})
    comparison.members(None, current.fields, wanted.fields, where="")
    comparison.refused += [
        f"{each.name} is part of the key and becomes optional"
        for each in wanted.columns()
        if each.field.id in wanted.identifier_ids and not each.field.required
    ]
    if current.identifier_ids != wanted.identifier_ids:
        before = _names(current, current.identifier_ids)
        after = _names(wanted, wanted.identifier_ids)
        comparison.refused.append(f"the key changes from ({before}) to ({after})")
    if comparison.refused:
        message = f"the schema cannot follow: {'; '.join(comparison.refused)}"
        raise UnsupportedSchemaChangeError(message)
    return SchemaChange(tuple(comparison.steps))


def _names(schema: Schema, ids: frozenset[int]) -> str:
    return ", ".join(each.name for each in schema.columns() if each.field.id in ids)


class _Comparison:
    """Collects steps and refusals while two trees are compared."""

    def __init__(self, known: set[int]) -> None:
        self.steps: list[Step] = []
        self.refused: list[str] = []
        self._known = known

    def members(
        self, parent: int | None, old: tuple[Field, ...], new: tuple[Field, ...], *, where: str
    ) -> None:
        """Compare the fields of two structs, or of two schemas."""
        before = {each.id: each for each in old}
        remaining = {each.id for each in new}
        self.steps += [Drop(each.id) for each in old if each.id not in remaining]
        for each in new:
            if each.id in before:
                self._field(before[each.id], each, where=where)
        stay = _longest_run([each.id for each in old], [each.id for each in new])
        after: int | None = None
        for each in new:
            if each.id not in before:
                self._add(each, parent, after, where=where)
            elif each.id not in stay:
                self.steps.append(Move(each.id, after))
            after = each.id

    def _add(self, new: Field, parent: int | None, after: int | None, *, where: str) -> None:
        if new.id in self._known:
            self.refused.append(f"{where}{new.name} moves to another parent")
        elif new.required and new.initial_default is None:
            self.refused.append(f"{where}{new.name} is new, required and without a default")
        else:
            self.steps.append(Add(new, parent, after))

    def _field(self, old: Field, new: Field, *, where: str) -> None:
        name = f"{where}{old.name}"
        if old.name != new.name:
            self.steps.append(Rename(old.id, new.name))
        if new.required and not old.required:
            self.refused.append(f"{name} becomes required")
        elif old.required and not new.required:
            self.steps.append(MakeOptional(old.id))
        if (old.initial_default, old.write_default) != (new.initial_default, new.write_default):
            self.refused.append(f"{name} changes its default")
        self._type(old, old.type, new.type, name=name)

    def _type(self, field: Field, old: Type, new: Type, *, name: str) -> None:
        match old, new:
            case Struct(before), Struct(after):
                self.members(field.id, before, after, where=f"{name}.")
            case List(before), List(after):
                self._inner(before, after, where=f"{name}.")
            case Map(key, before), Map(new_key, after):
                if key != new_key:
                    self.refused.append(f"{name} changes its key from {key.type} to {new_key.type}")
                self._inner(before, after, where=f"{name}.")
            case _:
                self._scalar(field, old, new, name=name)

    def _inner(self, old: Field, new: Field, *, where: str) -> None:
        if old.id == new.id:
            self._field(old, new, where=where)
        else:
            self.refused.append(f"{where}{old.name} is another field")

    def _scalar(self, field: Field, old: Type, new: Type, *, name: str) -> None:
        if old == new:
            return
        if isinstance(old, Nested) or isinstance(new, Nested) or not widens(old, new):
            self.refused.append(f"{name} changes from {old} to {new}")
        else:
            self.steps.append(Widen(field.id, old, new))


def widens(old: Scalar, new: Scalar) -> bool:
    """Whether the new type takes all values of the old one, and some more."""
    if isinstance(old, Decimal) and isinstance(new, Decimal):
        return old.scale == new.scale and old.precision < new.precision
    return (old, new) in _WIDENINGS


def _longest_run(old: list[int], new: list[int]) -> set[int]:
    """The largest set of common ids that are in the same order: those need not move."""
    index_of = {each: index for index, each in enumerate(old)}
    common = [each for each in new if each in index_of]
    tails: list[int] = []
    lasts: list[int] = []
    before: dict[int, int | None] = {}
    for each in common:
        at = bisect_left(tails, index_of[each])
        before[each] = lasts[at - 1] if at else None
        tails[at:] = [index_of[each], *tails[at + 1 :]]
        lasts[at:] = [each, *lasts[at + 1 :]]
    run: set[int] = set()
    last = lasts[-1] if lasts else None
    while last is not None:
        run.add(last)
        last = before[last]
    return run


def plan_evolution(
    current: Schema, wanted: Schema, *, last_column_id: int, format_version: int
) -> SchemaChange:
    """The steps from one schema to the other, on this very table.

    Raises UnsupportedSchemaChangeError when no step leads there, when a new column has the id of
    one that was dropped, or a default that the table's format does not know.
    """
    change = plan_schema_change(current, wanted)
    for step in change.steps:
        if isinstance(step, Add):
            _refuse_unusable(step.field, last_column_id, format_version)
    return change


def _refuse_unusable(new: Field, last_column_id: int, format_version: int) -> None:
    ids = [column.field.id for column in Schema(0, (new,)).columns()]
    if min(ids) <= last_column_id:
        # The dropped column's values in old files would come back under the new name.
        message = (
            f"the new column {new.name!r} has id {min(ids)}, and the table has given ids up to "
            f"{last_column_id}."
        )
        raise UnsupportedSchemaChangeError(message)
    if new.initial_default is not None and format_version < _DEFAULTS_SINCE:
        message = (
            f"the new column {new.name!r} has a default, which tables of format version "
            f"{format_version} do not keep."
        )
        raise UnsupportedSchemaChangeError(message)


def sentences(change: SchemaChange, before: Schema, after: Schema) -> tuple[str, ...]:
    """What each step does, by the names that people know; values of defaults are not shown."""
    old = {each.field.id: each.name for each in before.columns()}
    new = {each.field.id: each.name for each in after.columns()}
    return tuple(_sentence(step, old, new) for step in change.steps)


def _sentence(step: Step, old: dict[int, str], new: dict[int, str]) -> str:
    match step:
        case Add(field):
            default = "" if field.initial_default is None else " with a default"
            return f"{new[field.id]} is added as {field.type}{default}"
        case Drop(id_):
            return f"{old[id_]} is dropped"
        case Rename(id_):
            return f"{old[id_]} is renamed to {new[id_]}"
        case Move(id_, after):
            where = "to the front" if after is None else f"behind {new[after]}"
            return f"{new[id_]} moves {where}"
        case Widen(id_, was, becomes):
            return f"{old[id_]} becomes {becomes}, and was {was}"
        case _:
            return f"{old[step.id]} becomes optional"
