"""How the columns of a mirror are mapped from those of its changelog, and how that is recorded.

Names can be reused, field ids cannot. The property ``frazil.columns`` says which field of the
changelog became which field of the mirror; it is committed together with the schema it describes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from frazil.errors import UnsupportedSchemaChangeError
from frazil.model.recorded_version import NEWER_STEP, newer_version
from frazil.model.schema.types import Nested, children
from frazil.model.table_facts import COLUMNS_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from frazil.model.schema.types import Field

VERSION = 1


class ColumnOrigin(StrEnum):
    """Where the values of a column come from."""

    CHANGELOG = "changelog"
    # The merge itself: the flag of soft deletes.
    DELETED = "deleted"
    # Dropped at the source, or added by another engine. New rows have nulls.
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """A field of the mirror and the field of the changelog that it is mapped from.

    ``members`` are the nested fields, in the mirror's order.
    """

    target: Field
    source: Field | None = None
    origin: ColumnOrigin = ColumnOrigin.NOTHING
    members: tuple[ColumnMapping, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the changelog's values have the mirror's type as they are."""
        if self.source is None:
            return False
        if not isinstance(self.target.type, Nested):
            return self.target.type == self.source.type
        inside = children(self.source.type)
        return tuple(each.source for each in self.members) == inside and all(
            each.fits and each.source is not None and each.source.name == each.target.name
            for each in self.members
        )

    @property
    def is_comparable(self) -> bool:
        """Whether a row that is read back can be compared with the change that wrote it.

        Not if the mirror kept members that the source dropped, or if the changelog fills in a
        default that the mirror does not keep.
        """
        if self.source is None or (self.members and not self.fits):
            return False
        return all(
            each.source is None
            or each.source.initial_default is None
            or each.target.initial_default is not None
            for each in self.flatten()
        )

    def flatten(self) -> Iterator[ColumnMapping]:
        """This mapping and the nested ones."""
        yield self
        for member in self.members:
            yield from member.flatten()


def map_field(source: Field, target: Field) -> ColumnMapping:
    """The mapping between two fields of one shape."""
    inside = zip(children(source.type), children(target.type), strict=True)
    members = tuple(map_field(one, other) for one, other in inside)
    return ColumnMapping(target, source, ColumnOrigin.CHANGELOG, members)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedField:
    """A field at any depth, by its id in both tables.

    ``attribute`` is its number at the source, if known, and is kept unchanged. A field that the
    source dropped and the mirror kept is ``dropped``.
    """

    changelog: int
    mirror: int
    attribute: int | None = None
    dropped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedColumns:
    """All fields that merges created, with the mirror's ids of its key and of its delete flag."""

    fields: tuple[RecordedField, ...] = ()
    key: tuple[int, ...] = ()
    deleted: int | None = None


def encode_columns(columns: RecordedColumns) -> str:
    """One line of JSON; the same map always gives the same text."""
    fields = sorted(columns.fields, key=lambda each: each.mirror)
    document: dict[str, object] = {"version": VERSION, "key": list(columns.key)}
    if columns.deleted is not None:
        document["deleted"] = columns.deleted
    document["fields"] = [_field_to_json(each) for each in fields]
    return json.dumps(document, separators=(",", ":"))


def decode_columns(text: str, *, table: str) -> RecordedColumns:
    """Parse the property; an invalid one is refused, because matching by name would be a guess."""
    try:
        return _from_json(json.loads(text))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"the property {COLUMNS_PROPERTY} is not a map of columns of version {VERSION}."
        step = f"restore {COLUMNS_PROPERTY}, or remove it to map columns by name once"
        if newer_version(text, VERSION) is not None:
            step = NEWER_STEP
        raise UnsupportedSchemaChangeError(message, table=table, next_step=step) from error


def _from_json(document: Mapping[str, Any]) -> RecordedColumns:
    if document["version"] != VERSION:
        raise ValueError(document["version"])
    deleted = document.get("deleted")
    return RecordedColumns(
        fields=tuple(_field_from_json(each) for each in document["fields"]),
        key=tuple(int(each) for each in document["key"]),
        deleted=None if deleted is None else int(deleted),
    )


def _field_to_json(field: RecordedField) -> dict[str, object]:
    document: dict[str, object] = {"changelog": field.changelog, "mirror": field.mirror}
    if field.attribute is not None:
        document["attribute"] = field.attribute
    if field.dropped:
        document["dropped"] = True
    return document


def _field_from_json(document: Mapping[str, Any]) -> RecordedField:
    attribute = document.get("attribute")
    return RecordedField(
        changelog=int(document["changelog"]),
        mirror=int(document["mirror"]),
        attribute=None if attribute is None else int(attribute),
        dropped=document.get("dropped") is True,
    )
