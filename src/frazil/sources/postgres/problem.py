"""A problem that was found before anything started, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Where frazil keeps tables of its own in a database that is also a buffer.
OWN_SCHEMAS = ("frazil",)


class Severity(StrEnum):
    """How severe a problem is."""

    STOPS = "stops"
    """The pipeline cannot start; with a table named, that table cannot."""
    WARNS = "warns"
    """It works, and an operator should know."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One sentence, and the SQL that fixes the problem where SQL can."""

    severity: Severity
    sentence: str
    sql: tuple[str, ...] = ()
    table: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightSettings:
    """What the configuration wants of the server.

    ``keys`` has the columns configured as a table's key, by ``schema.table``, where they are not
    its primary key.
    """

    slot: str
    publication: str
    creates_publication: bool
    held_wal_bytes: int
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    own_schemas: tuple[str, ...] = OWN_SCHEMAS


def stops(sentence: str, *sql: str, table: str | None = None) -> Problem:
    """A problem that must be solved first."""
    return Problem(Severity.STOPS, sentence, sql, table)


def warns(sentence: str, *sql: str, table: str | None = None) -> Problem:
    """A problem that an operator should know of."""
    return Problem(Severity.WARNS, sentence, sql, table)
