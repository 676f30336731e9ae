"""One table as the catalog shows it at one moment, with what surrounds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.errors import SourceUnavailableError
from frazil.model.postgres.facts import GeneratedKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.model.postgres.facts import (
        Attribute,
        PublicationFacts,
        PublishedTable,
        ServerFacts,
        TableFacts,
    )
    from frazil.model.postgres.types import TypeRow


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogView:
    """All of it from one view of the catalog; ``types`` are those of the table's columns."""

    server: ServerFacts
    publication: PublicationFacts
    published: PublishedTable
    table: TableFacts
    types: Mapping[int, TypeRow]

    @property
    def name(self) -> str:
        """The table's name."""
        return str(self.table.name)

    @property
    def sent(self) -> tuple[Attribute, ...]:
        """The columns that the stream brings, in the order in which it does."""
        names = set(self.published.columns)
        unknown = names - {each.name for each in self.table.attributes}
        if unknown:
            # Two questions, and a change in between; one view would have prevented it.
            message = "the table changed while its facts were requested."
            raise SourceUnavailableError(message, table=self.name)
        return tuple(
            each for each in self.table.attributes if each.name in names and self._is_sent(each)
        )

    @property
    def highest_number(self) -> int:
        """The highest number that a column of the table ever had."""
        return max(
            (0, *(each.number for each in self.table.attributes), *self.table.dropped_numbers)
        )

    def _is_sent(self, attribute: Attribute) -> bool:
        # Some versions show computed columns among the published ones and do not send them.
        is_plain = attribute.generated is GeneratedKind.NO
        return is_plain or self.publication.sends_generated or self.published.has_column_list
