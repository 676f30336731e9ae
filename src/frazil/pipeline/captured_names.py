"""Which changelog and which mirror a table of the source becomes; pure."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from frazil.errors import ConfigError, FrazilError
from frazil.model.table_name import TableName, parse_table_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from frazil.config import Config

_PLACEHOLDER = re.compile(r"\{(schema|table)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedNames:
    """The two tables of the lake that one table of the source has."""

    changelog: TableName
    mirror: TableName


Named: TypeAlias = CapturedNames | FrazilError


@dataclass(frozen=True, slots=True)
class _Claim:
    """Who wants to be a table of the lake, as a person would say it."""

    holder: str
    what: str


def captured_names(config: Config, source_names: Iterable[str]) -> Mapping[str, Named]:
    """The tables of the lake for each ``schema.table`` of the source, or why it can have none.

    The templates name them; ``tables[].changelog`` of the mirror so named goes before. Tables that
    would become one table of the lake get neither, and each is told of the other: catalogs may
    ignore the case of names, so that a difference in case is none.
    """
    named: dict[str, Named] = {}
    for source in dict.fromkeys(source_names):
        try:
            named[source] = _names_of(config, source)
        except ConfigError as error:
            named[source] = ConfigError(
                error.message,
                table=source,
                next_step="leave it out by source.exclude, or change the templates of names",
            )
    return named | dict(_collisions(config, named))


class LakeNames:
    """The tables of the lake for one table of the source at a time, judged beside all others.

    ``follow`` says who the others are.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._others: Callable[[], Iterable[str]] = tuple
        self._judged: tuple[frozenset[str], Mapping[str, Named]] = frozenset(), {}

    def follow(self, others: Callable[[], Iterable[str]]) -> None:
        """Ask for the names of all tables here from now on."""
        self._others = others

    def of(self, source: str) -> CapturedNames:
        """What this one becomes; raises ConfigError if it is in the way of another one."""
        tables = frozenset((source, *self._others()))
        judged, named = self._judged
        if tables != judged:
            named = captured_names(self._config, sorted(tables))
            # In one go, because two threads may ask.
            self._judged = tables, named
        found = named[source]
        if isinstance(found, FrazilError):
            raise found
        return found


def _names_of(config: Config, source: str) -> CapturedNames:
    catalog = config.catalog.name
    mirror = _filled((config.mirror.namespace, config.mirror.table), source, catalog)
    own = next((each for each in config.tables if each.mirror == str(mirror)), None)
    if own is not None and own.changelog is not None:
        changelog = parse_table_name(own.changelog, catalog=catalog)
    else:
        changelog = _filled((config.changelog.namespace, config.changelog.table), source, catalog)
    return CapturedNames(changelog=changelog, mirror=mirror)


def _filled(templates: Sequence[str], source: str, catalog: str) -> TableName:
    """A dot of the templates separates levels; one from the source is part of a name: refused."""
    # A name with more dots is refused either way, so that it does not matter whose they are.
    schema, _, table = source.partition(".")
    words = {"schema": schema, "table": table}
    levels = ".".join(templates).split(".")
    # In one go, because a table may be called like a placeholder.
    filled = [_PLACEHOLDER.sub(lambda found: words[found[1]], level) for level in levels]
    return TableName(catalog, tuple(filled[:-1]), filled[-1])


def _collisions(config: Config, named: Mapping[str, Named]) -> Iterator[tuple[str, ConfigError]]:
    claims: defaultdict[str, list[tuple[_Claim, TableName]]] = defaultdict(list)
    for claim, name in _claims(config, named):
        claims[str(name).casefold()].append((claim, name))
    for rivals in claims.values():
        for claim, name in rivals:
            other = next((each for each, _ in rivals if each is not claim), None)
            if other is not None and claim.holder in named:
                yield claim.holder, _collision(claim, other, name)


def _claims(config: Config, named: Mapping[str, Named]) -> Iterator[tuple[_Claim, TableName]]:
    for source, names in named.items():
        if isinstance(names, CapturedNames):
            yield _Claim(source, f"the mirror of {source}"), names.mirror
            yield _Claim(source, f"the changelog of {source}"), names.changelog
    for what, book in (("ledger", config.ledger), ("dead letters", config.dead_letters)):
        name = parse_table_name(f"{book.namespace}.{book.table}", catalog=config.catalog.name)
        yield _Claim("", f"the pipeline's {what}"), name


def _collision(claim: _Claim, other: _Claim, name: TableName) -> ConfigError:
    message = f"{name} would be {claim.what} and also {other.what}."
    return ConfigError(
        message,
        table=claim.holder,
        next_step="leave one out by source.exclude, or change the templates of names",
    )
