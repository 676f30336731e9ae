"""Checked before anything is started: the source, and whether a table can be made and written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from frazil.errors import StorageError
from frazil.hooks import SystemRandomness
from frazil.ledger.table import Ledger
from frazil.ledger.table_state import Streaming, TableState
from frazil.model.readers import FILES_FORMAT, VECTORS_FORMAT, without_vectors
from frazil.model.table_name import parse_table_name
from frazil.pipeline.configured_source import configured_source
from frazil.pipeline.tables.captured_mirrors import ledger_name
from frazil.pipeline.tables.captured_names import CapturedNames, captured_names
from frazil.sources.findings import CheckedItem, Findings, Severity, problem_of, warns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from frazil.clients.iceberg.lake import Lake
    from frazil.config import Config
    from frazil.model.readers import Reader
    from frazil.model.table_name import TableName
    from frazil.pipeline.tables.captured_names import Named
    from frazil.sources.findings import Problem

_TOKEN_BYTES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFindings(Findings):
    """The source, and what its tables become in the lake.

    ``names`` has the captured tables; ``not_made`` are those tables of the lake that no run makes,
    such as the mirror of a table without a key.
    """

    names: Mapping[str, Named] = field(default_factory=dict)
    not_made: frozenset[str] = frozenset()


def check_readiness(config: Config) -> Findings:
    """What keeps a run from capturing anything; raises what prevents the check."""
    return Findings() if config.source is None else configured_source(config).check_readiness()


def check_source(config: Config) -> SourceFindings:
    """Everything about the source; what prevents the check is a problem too."""
    if config.source is None:
        return SourceFindings()
    return name_tables(config, configured_source(config).check())


def name_tables(config: Config, found: Findings) -> SourceFindings:
    """With the tables of the lake that the source's tables become, and their problems; pure."""
    tables = found.tables or ()
    names = captured_names(config, (each.name for each in tables))
    problems = [
        *found.problems,
        *(problem_of(each) for each in names.values() if not isinstance(each, CapturedNames)),
        *(_unused(config, names) if found.tables is not None else ()),
    ]
    stopped = {each.table for each in problems if each.severity is Severity.STOPS}
    about = [each.about for each in found.checked]
    # Where the source says how many there are.
    at = about.index("tables") + 1 if "tables" in about else len(about)
    lines, not_made = list(found.checked[:at]), set[str]()
    for table in tables:
        named = names[table.name]
        if not isinstance(named, CapturedNames):
            continue
        if table.name in stopped:
            not_made |= {str(named.changelog), named.listed_as}
            continue
        mirror = ", no mirror"
        if table.key and named.mirror is not None:
            mirror = f" and mirror {named.mirror} by {', '.join(table.key)}"
        elif named.mirror is not None:
            not_made.add(str(named.mirror))
        lines.append(CheckedItem(table.name, f"becomes changelog {named.changelog}{mirror}"))
    return SourceFindings(
        checked=(*lines, *found.checked[at:]),
        problems=tuple(sorted(problems, key=lambda each: each.severity is not Severity.STOPS)),
        error=found.error,
        tables=found.tables,
        names=names,
        not_made=frozenset(not_made),
    )


def _unused(config: Config, names: Mapping[str, Named]) -> Iterator[Problem]:
    """A listed mirror that no table becomes is misspelt, unless it is merged on its own."""
    mirrors = {each.listed_as for each in names.values() if isinstance(each, CapturedNames)}
    for table in config.tables:
        is_merge = table.changelog is not None and table.key
        if table.mirror not in mirrors and not is_merge:
            yield warns(
                f"tables has {table.mirror}, and no captured table has a mirror of this name.",
                table=table.mirror,
            )


def reader_problems(
    config: Config, readers: Iterable[Reader], formats: Mapping[str, int]
) -> Iterator[Problem]:
    """Readers who do not know the format of mirrors; ``formats`` has those that are there."""
    for reader in without_vectors(readers):
        unread = sorted(name for name, version in formats.items() if version >= VECTORS_FORMAT)
        if unread:
            yield warns(
                f"{reader.value} is not known to read deletion vectors, which {', '.join(unread)} "
                f"of format {VECTORS_FORMAT} have or will have: a table keeps the format that it "
                "was made with."
            )
        if config.mirror.format_version >= VECTORS_FORMAT:
            yield warns(
                f"{reader.value} is not known to read deletion vectors, which new mirrors get: "
                f"set mirror.format_version: {FILES_FORMAT} before the first run."
            )


def format_problem(*, wanted: int, made: int) -> Problem | None:
    """A catalog that makes a table of another format than it was asked for."""
    if made == wanted:
        return None
    return warns(
        f"The catalog does not know format {wanted}: it made a table of format {made} instead. Set "
        f"mirror.format_version: {made}, so that the document says what the tables are."
    )


def try_writing(lake: Lake, config: Config, *, format_version: int) -> int:
    """The format that a new table has; it may be another than was asked for.

    Raises what keeps a table from being created, written, read or removed.

    The catalog, the store and both writers have a part in it, as in every batch: the driver
    writes metadata, and the writer of tasks a file with one row. It is read again, because some
    stores take what they do not understand for a part of the file.
    """
    name = _trial_name(config)
    is_new = not lake.has_namespace(name)
    try:
        trial = Ledger.ensure(lake, name, format_version=format_version)
        try:
            row = TableState(table=name.table, identity="", state=Streaming())
            trial.note([], pipeline=config.pipeline, batch=name.table, table_states=[row])
            if trial.table_states() != (row,):
                raise StorageError("what was written is not what is read.", table=str(name))
            return trial.table.load_state().format_version
        finally:
            lake.drop_table(name)
    finally:
        if is_new and lake.has_namespace(name):
            lake.drop_namespace(name)


def _trial_name(config: Config) -> TableName:
    """A table that does not exist, where the first table of a run would be created."""
    first = ledger_name(config)
    if config.source is None:
        first = parse_table_name(config.tables[0].mirror, catalog=config.catalog.name)
    return replace(first, table=f"frazil_check_{SystemRandomness().token(_TOKEN_BYTES).hex()}")
