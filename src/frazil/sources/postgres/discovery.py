"""The tables that the configuration chooses, as the catalog shows them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from frazil.errors import FrazilError
from frazil.model.source_table import SourceTable
from frazil.sources.postgres.checks.obstacles import find_missing, find_obstacle, is_sendable
from frazil.sources.postgres.tables.catalog_views import load_all_views, load_names
from frazil.sources.postgres.tables.description import describe_table
from frazil.sources.postgres.tables.identity import identity_of

if TYPE_CHECKING:
    from frazil.clients.postgres.session import Session
    from frazil.sources.postgres.settings import PostgresSettings
    from frazil.sources.postgres.tables.catalog_view import CatalogView


def discover_tables(session: Session, settings: PostgresSettings) -> tuple[SourceTable, ...]:
    """Every table that is meant, also one that cannot be captured now, with its obstacle."""
    views = load_all_views(
        session,
        publication=settings.publication,
        include=settings.include,
        exclude=settings.exclude,
    )
    missing = find_missing(settings, views, lambda: load_names(session))
    absent = (
        SourceTable(name=name, identity="", shape="", columns=(), obstacle=error)
        for name, error in missing.items()
    )
    return (*(_described(view, settings) for view in views.values()), *absent)


def _described(view: CatalogView, settings: PostgresSettings) -> SourceTable:
    obstacle = find_obstacle(view, creates_publication=settings.creates_publication)
    try:
        options = settings.options(view.name)
    except FrazilError as error:
        # Another table has its name in the lake.
        options, obstacle = None, obstacle or error
    # Without one, it is gone for a changelog that captured it under this name.
    key = () if options is None else options.key
    identity = identity_of(view, key) if is_sendable(view) else ""
    known = SourceTable(name=view.name, identity=identity, shape="", columns=(), obstacle=obstacle)
    if options is None or not identity:
        return known
    try:
        described = describe_table(view, options).table
    except Exception:  # noqa: BLE001 - a defect is reported for its own table
        # The reason is raised when it is read; until then it is only a name.
        return known
    return replace(described, obstacle=obstacle)
