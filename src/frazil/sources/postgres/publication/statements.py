"""The statements that make a publication send what is captured; pure.

Every one says ONLY: without it a statement about a table is one about all that inherit from it
too, so that a child would be added twice, or leave the publication together with its parent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.model.postgres.names import quote_identifier

if TYPE_CHECKING:
    from collections.abc import Iterable

    from frazil.model.postgres.names import QualifiedName


def create_statement(name: str, tables: Iterable[QualifiedName]) -> str:
    """Create a publication of these tables, or of none yet."""
    listed = _listed(tables)
    which = f" for table {listed}" if listed else ""
    return (
        f"create publication {quote_identifier(name)}{which} "
        "with (publish_via_partition_root = true)"
    )


def add_statement(name: str, tables: Iterable[QualifiedName]) -> str:
    """Add tables to a publication."""
    return f"alter publication {quote_identifier(name)} add table {_listed(tables)}"


def drop_statement(name: str, tables: Iterable[QualifiedName]) -> str:
    """Take tables out of a publication."""
    return f"alter publication {quote_identifier(name)} drop table {_listed(tables)}"


def _listed(tables: Iterable[QualifiedName]) -> str:
    return ", ".join(f"only {each.quoted}" for each in tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationPlan:
    """What is changed of the publication of this name; ``creates`` it with the tables it adds."""

    name: str
    creates: bool = False
    adds: tuple[QualifiedName, ...] = ()
    drops: tuple[QualifiedName, ...] = ()

    @property
    def statements(self) -> tuple[str, ...]:
        """As few statements as do it."""
        found = []
        if self.creates:
            found.append(create_statement(self.name, self.adds))
        elif self.adds:
            found.append(add_statement(self.name, self.adds))
        if self.drops:
            found.append(drop_statement(self.name, self.drops))
        return tuple(found)
