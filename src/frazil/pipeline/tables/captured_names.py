"""Which changelog and which mirror a table of the source becomes; pure."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from frazil.config import table_settings
from frazil.errors import ConfigError, FrazilError
from frazil.ledger.table_state import Copying
from frazil.model.table_name import TableName, parse_table_name
from frazil.sources.registry import find_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from frazil.config import Config
    from frazil.ledger.table_state import TableState
    from frazil.sources.kind import ListedTable

_PLACEHOLDER = re.compile(r"\{(schema|table)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedNames:
    """The two tables of the lake that one table of the source has; one for a table of records."""

    changelog: TableName
    mirror: TableName | None

    @property
    def mirror_text(self) -> str | None:
        """The mirror's name as people write it."""
        return None if self.mirror is None else str(self.mirror)

    @property
    def listed_as(self) -> str:
        """The name that the configuration has settings under."""
        return self.mirror_text or str(self.changelog)


Named: TypeAlias = CapturedNames | FrazilError

# How good a claim to a name in the lake is: of two, the better one keeps it.
_NEW, _CHOSEN, _CAPTURED, _OWN = range(4)
_NOT_IN_THE_LEDGER: Mapping[str, TableState] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Claim:
    """What would become a table of the lake, as a phrase."""

    holder: str
    what: str
    rank: int


def captured_names(
    config: Config,
    source_names: Iterable[str],
    table_states: Mapping[str, TableState] = _NOT_IN_THE_LEDGER,
) -> Mapping[str, Named]:
    """The tables of the lake for each ``schema.table`` of the source, or why it can have none.

    The source's section may list them. Otherwise the templates name them; an entry of ``tables``
    with this ``source`` goes before, as does the ``changelog`` of the mirror so named. Of tables
    that would become one table of the lake, the one that ``table_states`` says was captured before
    keeps the name and the others are refused; where none was, all are. Catalogs may ignore the case
    of names, so that a difference in case is none.
    """
    named: dict[str, Named] = {}
    listed = _listed(config)
    for source in dict.fromkeys(source_names):
        try:
            named[source] = _names_of(config, source, listed.get(source))
        except ConfigError as error:
            named[source] = ConfigError(
                error.message,
                table=source,
                next_step="leave it out by source.exclude, or change the templates of names",
            )
    ranks = {source: _rank(table_states.get(source)) for source in named}
    return named | dict(_collisions(config, named, ranks))


def _rank(state: TableState | None) -> int:
    if state is None or not state.identity:
        return _NEW
    return _CHOSEN if isinstance(state.state, Copying) else _CAPTURED


class LakeNames:
    """The tables of the lake for one table of the source at a time, judged with all others.

    ``follow`` says who the others are.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._table_states: Callable[[], Mapping[str, TableState]] = dict
        self._judged: tuple[object, Mapping[str, Named]] = None, {}

    def follow(self, table_states: Callable[[], Mapping[str, TableState]]) -> None:
        """Read the states of all tables here from now on."""
        self._table_states = table_states

    def of(self, source: str) -> CapturedNames:
        """What this one becomes; raises ConfigError if it is in the way of another one."""
        table_states = self._table_states()
        tables = {source: _NEW} | {name: _rank(each) for name, each in table_states.items()}
        judged, named = self._judged
        if tables != judged:
            named = captured_names(self._config, sorted(tables), table_states)
            # In one assignment, because of two threads.
            self._judged = tables, named
        found = named[source]
        if isinstance(found, FrazilError):
            raise found
        return found


def _listed(config: Config) -> Mapping[str, ListedTable]:
    if config.source is None:
        return {}
    kind = find_kind(config, lambda table: table_settings(config, table))
    return {each.source: each for each in kind.listed_tables()}


def _names_of(config: Config, source: str, known: ListedTable | None) -> CapturedNames:
    catalog = config.catalog.name
    if known is not None:
        return CapturedNames(
            changelog=parse_table_name(known.changelog, catalog=catalog),
            mirror=None
            if known.mirror is None
            else parse_table_name(known.mirror, catalog=catalog),
        )
    own = next((each for each in config.tables if each.source == source), None)
    if own is not None:
        mirror = parse_table_name(own.mirror, catalog=catalog)
    else:
        mirror = _filled((config.mirror.namespace, config.mirror.table), source, catalog)
        listed = (each for each in config.tables if each.source is None)
        own = next((each for each in listed if each.mirror == str(mirror)), None)
    if own is not None and own.changelog is not None:
        changelog = parse_table_name(own.changelog, catalog=catalog)
    else:
        changelog = _filled((config.changelog.namespace, config.changelog.table), source, catalog)
    return CapturedNames(changelog=changelog, mirror=mirror)


def _filled(templates: Sequence[str], source: str, catalog: str) -> TableName:
    """A dot of the templates separates levels; one from the source is part of a name: refused."""
    # A name with more dots is refused either way, so that it does not matter whose they are.
    schema, _, table = source.partition(".")
    values = {"schema": schema, "table": table}
    levels = ".".join(templates).split(".")
    # In one go, because a table may be called like a placeholder.
    filled = [_PLACEHOLDER.sub(lambda found: values[found[1]], level) for level in levels]
    return TableName(catalog, tuple(filled[:-1]), filled[-1])


def _collisions(
    config: Config, named: Mapping[str, Named], ranks: Mapping[str, int]
) -> Iterator[tuple[str, ConfigError]]:
    claims: defaultdict[str, list[tuple[_Claim, TableName]]] = defaultdict(list)
    for claim, name in _claims(config, named, ranks):
        claims[str(name).casefold()].append((claim, name))
    for rivals in claims.values():
        for claim, name in rivals:
            others = [each for each, _ in rivals if each is not claim]
            other = max(others, key=lambda each: each.rank, default=None)
            if other is not None and other.rank >= claim.rank and claim.holder in named:
                yield claim.holder, _collision(claim, other, name)


def _claims(
    config: Config, named: Mapping[str, Named], ranks: Mapping[str, int]
) -> Iterator[tuple[_Claim, TableName]]:
    for source, names in named.items():
        if isinstance(names, CapturedNames):
            rank = ranks[source]
            if names.mirror is not None:
                yield _Claim(source, f"the mirror of {source}", rank), names.mirror
            yield _Claim(source, f"the changelog of {source}", rank), names.changelog
    for what, section in (("ledger", config.ledger), ("dead letters", config.dead_letters)):
        name = parse_table_name(f"{section.namespace}.{section.table}", catalog=config.catalog.name)
        yield _Claim("", f"the pipeline's {what}", _OWN), name


def _collision(claim: _Claim, other: _Claim, name: TableName) -> ConfigError:
    keeps = other.rank > claim.rank
    end = f"is {other.what}" if keeps else f"also {other.what}"
    message = f"{name} would be {claim.what} and {end}."
    return ConfigError(
        message,
        table=claim.holder,
        next_step=(
            f"name it otherwise in the configuration, as in tables: [{{source: {claim.holder}, "
            "mirror: …, changelog: …}], or leave it out by source.exclude"
            f"{'' if keeps else '; one that was captured before keeps the name'}"
        ),
    )
