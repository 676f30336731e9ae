"""All problems at once, each with the SQL that fixes it: what ``frazil check`` shows.

Pure: facts and options in, problems out. ``facts`` loads the former.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.sources.findings import Severity
from frazil.sources.postgres.checks.server_checks import readiness_problems, server_problems
from frazil.sources.postgres.checks.table_checks import table_problems
from frazil.sources.postgres.publication.checks import publication_problems

if TYPE_CHECKING:
    from frazil.model.postgres.facts import PostgresFacts
    from frazil.sources.findings import Problem
    from frazil.sources.postgres.preflight_settings import PreflightSettings


def find_problems(facts: PostgresFacts, settings: PreflightSettings) -> tuple[Problem, ...]:
    """Every problem: what stops first, and in each group the server before its tables."""
    found = [
        *server_problems(facts, settings),
        *publication_problems(facts, settings),
        *table_problems(facts, settings),
    ]
    return tuple(sorted(found, key=lambda problem: problem.severity is not Severity.STOPS))


def find_blocking(facts: PostgresFacts, settings: PreflightSettings) -> tuple[Problem, ...]:
    """What keeps every table from being captured.

    Problems of one table are not included. The slot is not checked here: that needs the ledger.
    """
    found = [*readiness_problems(facts), *publication_problems(facts, settings)]
    return tuple(each for each in found if each.severity is Severity.STOPS and each.table is None)
