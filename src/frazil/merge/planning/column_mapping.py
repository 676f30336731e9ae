"""How the columns of a mirror are mapped from those of its changelog."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from frazil.model.schema.types import Nested, children

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.model.schema.types import Field


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
