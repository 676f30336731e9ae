"""The source of a configuration, checked before anything is started."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.pipeline.configured_source import configured_source
from frazil.pipeline.tables.captured_names import CapturedNames, captured_names
from frazil.sources.findings import CheckedItem, Findings, Severity, problem_of, warns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from frazil.config import Config
    from frazil.pipeline.tables.captured_names import Named
    from frazil.sources.findings import Problem


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
            not_made |= {str(named.changelog), str(named.mirror)}
            continue
        mirror = ", no mirror"
        if table.key:
            mirror = f" and mirror {named.mirror} by {', '.join(table.key)}"
        else:
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
    mirrors = {str(each.mirror) for each in names.values() if isinstance(each, CapturedNames)}
    for table in config.tables:
        is_merge = table.changelog is not None and table.key
        if table.mirror not in mirrors and not is_merge:
            yield warns(
                f"tables has {table.mirror}, and no captured table has a mirror of this name.",
                table=table.mirror,
            )
