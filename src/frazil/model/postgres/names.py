"""Names and texts as PostgreSQL's SQL and its replication commands read them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class QualifiedName:
    """A table by schema and name, as the catalog spells them."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        """The name in a statement, whatever characters it holds."""
        return f"{quote_identifier(self.schema)}.{quote_identifier(self.name)}"


def quote_identifier(name: str) -> str:
    """An identifier in a statement; the only function that quotes one."""
    return '"' + _without_nul(name).replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """A text constant in a statement that takes no parameters.

    Sessions of ours read a backslash as itself, and so do replication commands.
    """
    return "'" + _without_nul(text).replace("'", "''") + "'"


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("a name holds the character NUL, which ends a statement")
    return text
