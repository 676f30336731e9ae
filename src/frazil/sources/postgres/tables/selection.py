"""Which relations of a database the configuration means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from frazil.model.postgres.facts import Persistence, RelationKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from frazil.model.postgres.facts import CatalogRelation, TableFacts

_WILDCARDS = frozenset("*?")
_TABLES = frozenset({RelationKind.TABLE, RelationKind.PARTITIONED})


@dataclass(frozen=True, slots=True)
class Selection:
    """The relations that are meant, and the patterns that mean none."""

    oids: tuple[int, ...]
    unmatched: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Pattern:
    text: str
    expression: re.Pattern[str]

    def means(self, relation: CatalogRelation) -> bool:
        # Everything in a schema means its tables; a view is meant by its very name only.
        if relation.kind not in _TABLES and not is_literal(self.text):
            return False
        return self.expression.fullmatch(str(relation.name)) is not None


def select_tables(
    relations: Iterable[CatalogRelation], *, include: Iterable[str], exclude: Iterable[str]
) -> Selection:
    """Choose by ``schema.table``, where * and ? represent other characters.

    A partition is part of its root: where the root is meant as well, it is not meant by itself.
    """
    included = [_pattern(text) for text in include]
    excluded = [_pattern(text) for text in exclude]
    meant = [
        (relation, [each.text for each in included if each.means(relation)])
        for relation in relations
    ]
    kept = {
        relation.oid: relation
        for relation, patterns in meant
        if patterns and not any(each.means(relation) for each in excluded)
    }
    matched = {text for _, patterns in meant for text in patterns}
    return Selection(
        oids=tuple(each.oid for each in kept.values() if each.root_oid not in kept),
        unmatched=tuple(each.text for each in included if each.text not in matched),
    )


def is_meant(name: str, *, include: Iterable[str], exclude: Iterable[str]) -> bool:
    """Whether these patterns choose a table of this name; it need not exist."""
    chosen = any(_pattern(each).expression.fullmatch(name) for each in include)
    return chosen and not any(_pattern(each).expression.fullmatch(name) for each in exclude)


def is_literal(pattern: str) -> bool:
    """Whether a pattern names one table."""
    return not _WILDCARDS & set(pattern)


def nearest_names(patterns: Iterable[str], names: Sequence[str]) -> dict[str, str]:
    """For each literal pattern the name that is most like it, where one is."""
    found = {each: get_close_matches(each, names, n=1) for each in patterns if is_literal(each)}
    return {each: near[0] for each, near in found.items() if near}


def _pattern(text: str) -> _Pattern:
    wild = {"*": ".*", "?": "."}
    expression = "".join(wild.get(each, re.escape(each)) for each in text)
    return _Pattern(text, re.compile(expression, re.DOTALL))


def can_be_published(table: TableFacts) -> bool:
    """Whether the server lets a publication have it at all."""
    return table.kind in _TABLES and table.persistence is Persistence.PERMANENT
