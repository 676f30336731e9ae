"""Names of tables: checked once, quoted by one function."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from frazil.errors import ConfigError

# Catalogs keep names in columns of 255 characters and tables in folders of the same name, which
# file systems limit to 255 bytes; this leaves space for what they add.
LONGEST_PART_BYTES = 200


@dataclass(frozen=True, slots=True)
class TableName:
    """``catalog.namespace.table``; the namespace may have several levels."""

    catalog: str
    namespace: tuple[str, ...]
    table: str

    def __post_init__(self) -> None:
        if not self.namespace:
            message = f"table {self.table!r} has no namespace."
            raise ConfigError(message, next_step="write it as namespace.table")
        for part in (self.catalog, *self.namespace, self.table):
            _refuse_unusable(part)

    def __str__(self) -> str:
        return ".".join((*self.namespace, self.table))

    @property
    def quoted(self) -> str:
        """The name as Spark SQL reads it, whatever characters it holds."""
        return ".".join(map(quote, (self.catalog, *self.namespace, self.table)))

    @property
    def quoted_namespace(self) -> str:
        """The namespace as Spark SQL reads it."""
        return ".".join(map(quote, (self.catalog, *self.namespace)))


def parse_table_name(text: str, *, catalog: str) -> TableName:
    """Read ``namespace.table``, as configurations write it."""
    *namespace, table = text.split(".")
    return TableName(catalog, tuple(namespace), table)


def quote(identifier: str) -> str:
    """An identifier as Spark SQL reads it; the only function that quotes."""
    return "`" + identifier.replace("`", "``") + "`"


def _refuse_unusable(part: str) -> None:
    """Some names would mean another folder or another table: those are refused, the rest works."""
    problem = None
    if not part.strip():
        problem = "is empty"
    elif part in {".", ".."} or "/" in part or "\\" in part:
        problem = "would be another folder"
    elif "." in part:
        problem = "holds a dot, which separates namespace and table"
    elif any(unicodedata.category(character) in {"Cc", "Cs"} for character in part):
        problem = "holds a control character"
    elif len(part.encode()) > LONGEST_PART_BYTES:
        problem = f"is longer than {LONGEST_PART_BYTES} bytes"
    if problem is not None:
        message = f"the name {part!r} cannot be used: it {problem}."
        raise ConfigError(message, next_step="choose another name for the table")
