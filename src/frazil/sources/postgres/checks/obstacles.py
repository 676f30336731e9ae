"""What keeps one table from being captured, as its facts show before anything is tried; pure.

The sentences are those of ``check``. A table is checked repeatedly and added when no obstacle
remains; other tables are not affected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.errors import ConfigError, PermissionError  # noqa: A004 - the published name
from frazil.sources.postgres.checks.table_checks import (
    reading_problems,
    schema_problem,
    sending_problems,
    unmatched_problem,
)
from frazil.sources.postgres.publication.checks import membership_problem
from frazil.sources.postgres.tables.selection import (
    is_literal,
    is_meant,
    nearest_names,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from frazil.errors import FrazilError
    from frazil.sources.findings import Problem
    from frazil.sources.postgres.settings import PostgresSettings
    from frazil.sources.postgres.tables.catalog_view import CatalogView

_LEAVE_OUT = "leave it out by source.exclude"


def find_obstacle(view: CatalogView, *, creates_publication: bool) -> FrazilError | None:
    """The first reason why this table cannot be captured, with the SQL that fixes it."""
    for problem in sending_problems(view.table):
        return _error(ConfigError, problem)
    for problem in _refusals(view, creates_publication=creates_publication):
        return _error(PermissionError, problem)
    return None


def _refusals(view: CatalogView, *, creates_publication: bool) -> Iterator[Problem]:
    table, server = view.table, view.server
    lacking = membership_problem(
        table,
        view.publication if view.publication.oid else None,
        server,
        name=view.publication.name,
        creates=creates_publication,
    )
    if lacking is not None:
        yield lacking
    if not table.privileges.uses_schema:
        yield schema_problem(table.name.schema, server.role)
    if table.is_partitioned or view.published.has_column_list:
        # Read partition by partition, and only some columns: the copy itself shows what is missing.
        return
    yield from reading_problems(table, server.role)


def _error(kind: type[FrazilError], problem: Problem) -> FrazilError:
    sentence = problem.sentence
    return kind(sentence, next_step=" ".join(problem.sql) or _LEAVE_OUT)


def find_missing(
    settings: PostgresSettings, known: Collection[str], load_names: Callable[[], Sequence[str]]
) -> dict[str, FrazilError]:
    """Tables that the configuration names and the database lacks."""
    include, exclude = settings.include, settings.exclude
    named = [each for each in include if is_literal(each) and each not in known]
    if not named:
        return {}
    names = load_names()
    missing = [
        each
        for each in named
        if each not in names and is_meant(each, include=include, exclude=exclude)
    ]
    nearest = nearest_names(missing, names)
    return {
        each: _error(ConfigError, unmatched_problem(each, nearest.get(each))) for each in missing
    }
