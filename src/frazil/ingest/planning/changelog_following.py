"""How the fields of an existing changelog follow the columns of the source; pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from frazil.changelog.layout import number_fields
from frazil.model.policy import OnDrop
from frazil.model.schema.change import widens
from frazil.model.schema.table_layout import OwnColumn
from frazil.model.schema.types import Field, List, Nested, Schema, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from frazil.changelog.layout import CdcColumns
    from frazil.ingest.planning.column_numbers import ColumnNumbers, NumberedField
    from frazil.model.schema.types import Type
    from frazil.model.source_table import SourceColumn, SourceTable


def find_field(fields: Iterable[Field], name: str) -> Field | None:
    """The field of this name as Spark reads it."""
    return next((each for each in fields if each.name.lower() == name.lower()), None)


def followed_type(existing: Type, new: Type) -> Type | None:
    """The new type with the ids of the existing one; None if rows that are there cannot follow."""
    if isinstance(existing, List) and isinstance(new, List):
        element = followed_type(existing.element.type, new.element.type)
        return None if element is None else List(replace(existing.element, type=element))
    if isinstance(existing, Nested) or isinstance(new, Nested):
        return None
    return new if existing == new or widens(existing, new) else None


@dataclass(slots=True, kw_only=True)
class ChangelogFollowing:
    """Iterates over the source's columns; collects fields, refusals and notices."""

    ours: CdcColumns
    current: tuple[Field, ...]
    known: ColumnNumbers
    last_id: int
    pinned: frozenset[int]
    on_drop: OnDrop
    keeps_defaults: bool
    restart: bool
    matches_names: bool
    field_ids: dict[int, int] = field(default_factory=dict)
    key_ids: dict[int, int] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def follow(self, table: SourceTable) -> tuple[Field, ...]:
        """The changelog's new fields; fields that stay keep their positions."""
        own = self._own()
        previous = find_field(self.current, self.ours.previous_key)
        mapped = self._columns(table, own)
        stays = {each.id: each for each in mapped}
        names = {each.name.lower() for each in mapped}
        fields: list[Field] = []
        # New columns go behind the last column of the source.
        end = 0
        for each in self.current:
            kept = stays.pop(each.id, None) or self._leftover(each, own, names)
            if kept is None:
                continue
            fields.append(kept)
            if each.id in self.known.field_ids or each.id in self.field_ids.values():
                end = len(fields)
        fields[end:end] = stays.values()
        return self._with_previous_key(fields, previous, table)

    def _own(self) -> frozenset[int]:
        """The ids of our own fields."""
        found = {name: find_field(self.current, name) for name in self.ours.names}
        self.refused += [
            f"the changelog lacks the column {name}"
            for name, each in found.items()
            if each is None and name != self.ours.previous_key
        ]
        return frozenset(each.id for each in found.values() if each is not None)

    def _columns(self, table: SourceTable, own: frozenset[int]) -> list[Field]:
        existing = {each.id: each for each in self.current if each.id not in own}
        matched = self._by_name(table, existing) if self.matches_names else {}
        taken = {each.id for each in matched.values()}
        mapped = []
        for column in table.columns:
            entry = self.known.live.get(column.number)
            found = matched.get(column.number)
            if found is None and entry is not None and entry.field not in taken:
                found = existing.get(entry.field)
            made = self._continued(column, found) if found is not None else None
            if made is None:
                made = self._add(column, entry)
            self.field_ids[column.number] = made.id
            mapped.append(made)
        return mapped

    def _by_name(self, table: SourceTable, existing: dict[int, Field]) -> dict[int, Field]:
        by_name = {each.name: each for each in existing.values()}
        return {
            column.number: by_name[column.name]
            for column in table.columns
            if column.name in by_name
        }

    def _continued(self, column: SourceColumn, existing: Field) -> Field | None:
        """The field under the column's name and type; None if it has to be replaced."""
        type_ = followed_type(existing.type, column.type)
        if type_ is not None:
            # Changes may lack it: a DELETE has only the key.
            is_record = not self.ours.layout.has_operations
            required = is_record and existing.required and column.required
            return replace(existing, name=column.name, type=type_, required=required)
        if self.restart:
            return None
        self.refused.append(f"{existing.name} changes from {existing.type} to {column.type}")
        return existing

    def _add(self, column: SourceColumn, entry: NumberedField | None) -> Field:
        default = None if self.restart else column.default
        if not self.restart:
            self.refused += self._unaddable(column, entry)
        new = Field(0, column.name, column.type, initial_default=default, write_default=default)
        self.added.append(column.name)
        return self._numbered(new)

    def _unaddable(self, column: SourceColumn, entry: NumberedField | None) -> list[str]:
        """Why rows that are there would show something else in the column than the source."""
        if entry is not None:
            return [f"{column.name} was dropped from the changelog"]
        if column.number <= self.known.highest:
            return [f"{column.name} was not sent until now, and older rows may have values in it"]
        if column.rewrote:
            return [
                f"{column.name} is new, and older rows may have values in it that were not sent"
            ]
        if column.default is not None and not self.keeps_defaults:
            return [f"{column.name} is new with a default, which only format version 3 keeps"]
        return []

    def _numbered(self, new: Field) -> Field:
        (made,) = number_fields((new,), first_id=self.last_id + 1)
        self.last_id = max(each.field.id for each in Schema(0, (made,)).columns())
        return made

    def _leftover(self, existing: Field, own: frozenset[int], names: set[str]) -> Field | None:
        """What becomes of a field that no column maps to; None if it goes."""
        if existing.id in own:
            return existing
        if existing.id not in self.known.field_ids:
            if existing.required:
                self.refused.append(f"{existing.name} is required, and no column maps to it")
            return existing
        if self.on_drop is OnDrop.KEEP and existing.name.lower() not in names:
            if any(each.field == existing.id for each in self.known.live.values()):
                self.notices.append(f"{existing.name} is gone at the source and is kept")
            return replace(existing, required=False)
        if existing.id in self.pinned:
            self.refused.append(
                f"{existing.name} is gone at the source, and the changelog is partitioned or "
                "sorted by it"
            )
        return None

    def _with_previous_key(
        self, fields: list[Field], previous: Field | None, table: SourceTable
    ) -> tuple[Field, ...]:
        is_kept = bool(table.key) and OwnColumn.PREVIOUS_KEY in self.ours.layout.columns
        if set(table.key) == set(self.known.key) and not is_kept:
            return tuple(fields)
        members = self._members(previous, table) if previous is not None else None
        if members is not None and previous is not None:
            made = replace(previous, type=Struct(members))
            return tuple(made if each.id == previous.id else each for each in fields)
        if not self.restart:
            self.refused.append(self._key_refusal(table))
            return tuple(fields)
        others = [each for each in fields if previous is None or each.id != previous.id]
        return (*others, *(self._new_previous_key(table) if is_kept else ()))

    def _members(self, previous: Field, table: SourceTable) -> tuple[Field, ...] | None:
        """The members of the previous key, in their order; None if they are not of this key."""
        existing = previous.type.fields if isinstance(previous.type, Struct) else ()
        numbers = self._member_numbers(existing, table)
        if {each.id for each in existing} != set(numbers) or len(existing) != len(table.key):
            return None
        made = []
        for each in existing:
            column = table.column(numbers[each.id])
            type_ = followed_type(each.type, column.type)
            if type_ is None:
                return None
            made.append(replace(each, name=column.name, type=type_))
        self.key_ids.update({number: member for member, number in numbers.items()})
        return tuple(made)

    def _member_numbers(self, members: Sequence[Field], table: SourceTable) -> dict[int, int]:
        """The number of the key column that each member, by its id, belongs to."""
        if set(table.key) == set(self.known.key):
            live = self.known.live
            known = {live[number].previous: number for number in table.key}
            return {member: number for member, number in known.items() if member is not None}
        if not self.restart:
            return {}
        by_name = {table.column(number).name: number for number in table.key}
        return {each.id: by_name[each.name] for each in members if each.name in by_name}

    def _new_previous_key(self, table: SourceTable) -> Sequence[Field]:
        columns = [table.column(number) for number in table.key]
        struct = Struct(tuple(Field(0, each.name, each.type) for each in columns))
        made = self._numbered(Field(0, self.ours.previous_key, struct))
        members = made.type.fields if isinstance(made.type, Struct) else ()
        self.key_ids.update(
            {number: each.id for number, each in zip(table.key, members, strict=True)}
        )
        return (made,)

    def _key_refusal(self, table: SourceTable) -> str:
        names = {each.id: each.name for each in self.current}
        before = [
            names.get(each.field, str(number))
            for number, each in sorted(self.known.live.items())
            if number in self.known.key
        ]
        after = [table.column(number).name for number in table.key]
        if set(table.key) == set(self.known.key):
            return f"{self.ours.previous_key} is not what the key ({', '.join(after)}) needs"
        return f"the key changes from ({', '.join(before)}) to ({', '.join(after)})"
