"""Changes the columns of an existing mirror to follow those of its changelog; pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from frazil.changelog.layout import number_fields
from frazil.merge.planning.column_mapping import ColumnMapping, ColumnOrigin, map_field
from frazil.model.policy import OnDrop
from frazil.model.schema.change import widens
from frazil.model.schema.types import Field, List, Map, Nested, Schema, Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.model.schema.types import Type

# Tables of older versions keep no defaults.
_DEFAULTS_SINCE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownColumns:
    """What is known about the mirror's columns, and what may change.

    ``mirror_ids`` maps the changelog's field ids to the mirror's, and ``ours`` are all of those.
    ``dropped`` are the mirror's fields that the source is known to have dropped, ``pinned`` those
    that partitioning or sorting needs; ``key`` are the changelog's. ``flag`` is the column that
    says whether a row is deleted.
    """

    mirror_ids: Mapping[int, int]
    ours: frozenset[int]
    dropped: frozenset[int]
    pinned: frozenset[int]
    key: frozenset[int]
    flag: int | None
    on_drop: OnDrop
    format_version: int


@dataclass(slots=True)
class SchemaFollower:
    """Traverses both schemas together; collects refusals and messages for the operator."""

    target: KnownColumns
    last_id: int
    refused: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    without_default: list[str] = field(default_factory=list)

    def members(
        self, sources: Sequence[Field], existing: tuple[Field, ...], *, where: str = ""
    ) -> tuple[ColumnMapping, ...]:
        """The new fields of a struct, or the new columns of the mirror."""
        by_id = {each.id: each for each in existing}
        mapped = [self._follow(each, by_id, where=where) for each in sources]
        taken = {each.target.id for each in mapped}
        names = {each.target.name.lower() for each in mapped}
        left = (each for each in existing if each.id not in taken)
        rest = [self._leave(each, names, where=where) for each in left]
        return _in_order(mapped, [each for each in rest if each is not None], existing)

    def add(self, new: Field, *, where: str = "") -> Field:
        """A field that is new to the mirror, with unused ids."""
        has_default = any(_has_default(each.field) for each in Schema(0, (new,)).columns())
        if has_default and self.target.format_version < _DEFAULTS_SINCE:
            new = without_defaults(new)
            self.without_default.append(f"{where}{new.name}")
        (added,) = number_fields((replace(new, required=False),), first_id=self.last_id + 1)
        self.last_id = max(each.field.id for each in Schema(0, (added,)).columns())
        return added

    def _follow(self, source: Field, existing: Mapping[int, Field], *, where: str) -> ColumnMapping:
        mirror_id = self.target.mirror_ids.get(source.id)
        if mirror_id is None:
            return map_field(source, self.add(source, where=where))
        if mirror_id not in existing:
            # Added again, it would be null in every existing row.
            self.refused.append(f"{where}{source.name} was dropped from the mirror")
            return map_field(source, self.add(source, where=where))
        return self._continue(source, existing[mirror_id], where=where)

    def _continue(self, source: Field, existing: Field, *, where: str) -> ColumnMapping:
        type_, members = self._type(source.type, existing.type, where=f"{where}{source.name}.")
        may_stay_required = source.required or source.id in self.target.key
        target = replace(
            existing,
            name=source.name,
            type=type_,
            required=existing.required and may_stay_required,
        )
        return ColumnMapping(target, source, ColumnOrigin.CHANGELOG, members)

    def _type(
        self, source: Type, existing: Type, *, where: str
    ) -> tuple[Type, tuple[ColumnMapping, ...]]:
        match source, existing:
            case Struct(fields), Struct(before):
                members = self.members(fields, before, where=where)
                return Struct(tuple(each.target for each in members)), members
            case List(element), List(before):
                inner = self._continue(element, before, where=where)
                return List(inner.target), (inner,)
            case Map(key, value), Map(key_before, value_before):
                first = self._continue(key, key_before, where=where)
                second = self._continue(value, value_before, where=where)
                return Map(first.target, second.target), (first, second)
            case _:
                return _wider(source, existing), ()

    def _leave(self, existing: Field, names: set[str], *, where: str) -> ColumnMapping | None:
        """The mapping of a field that the changelog does not have; None if it is dropped."""
        name = f"{where}{existing.name}"
        if existing.id == self.target.flag:
            return ColumnMapping(existing, origin=ColumnOrigin.DELETED)
        if existing.id not in self.target.ours:
            if existing.required:
                self.refused.append(f"{name} is required, and the changelog has no column for it")
            return ColumnMapping(existing)
        if self.target.on_drop is OnDrop.DROP:
            if existing.id not in self.target.pinned:
                return None
            self.refused.append(
                f"{name} was dropped at the source, but the mirror is partitioned or sorted by it"
            )
        return self._keep(existing, names, name)

    def _keep(self, existing: Field, names: set[str], name: str) -> ColumnMapping:
        if existing.id not in self.target.dropped:
            self.kept.append(name)
        kept = replace(existing, required=False)
        while kept.name.lower() in names:
            kept = replace(kept, name=f"{kept.name}_dropped_{kept.id}")
        return ColumnMapping(kept)


def without_defaults(new: Field) -> Field:
    """The field without defaults, at any depth."""
    bare = replace(new, initial_default=None, write_default=None)
    match new.type:
        case Struct(fields):
            return replace(bare, type=Struct(tuple(map(without_defaults, fields))))
        case List(element):
            return replace(bare, type=List(without_defaults(element)))
        case Map(key, value):
            return replace(bare, type=Map(without_defaults(key), without_defaults(value)))
        case _:
            return bare


def _has_default(each: Field) -> bool:
    return each.initial_default is not None or each.write_default is not None


def _wider(source: Type, existing: Type) -> Type:
    """The wider of both types: a mirror that is wider than the changelog is not changed."""
    if isinstance(source, Nested) or isinstance(existing, Nested):
        return source
    return existing if widens(source, existing) else source


def _in_order(
    mapped: Sequence[ColumnMapping], rest: Sequence[ColumnMapping], existing: tuple[Field, ...]
) -> tuple[ColumnMapping, ...]:
    """In the changelog's order; other fields keep the field that precedes them."""
    ordered = list(mapped)
    left = {each.target.id: each for each in rest}
    here = {each.target.id for each in mapped}
    at = 0
    for each in existing:
        if each.id in left:
            ordered.insert(at, left[each.id])
            at += 1
        elif each.id in here:
            at = 1 + next(n for n, mapping in enumerate(ordered) if mapping.target.id == each.id)
    return tuple(ordered)
