"""The signature and the help of ``init``, which has more options than most."""

from __future__ import annotations

# Typer reads these annotations when it runs, so they are not type-checking imports.
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_OUTPUT = Path("frazil.yaml")


class SourceWord(StrEnum):
    """As ``config.FirstSource``, which help must not wait for."""

    POSTGRES = "postgres"
    KAFSCALE = "kafscale"
    BUFFER = "buffer"
    NONE = "none"


class CatalogWord(StrEnum):
    """As ``config.CatalogKind``."""

    SQL = "sql"
    REST = "rest"
    GLUE = "glue"
    HIVE = "hive"


def init(
    *,
    output: Annotated[
        Path,
        typer.Option("--output", "--config", "-c", help="Where to write it; - for the terminal."),
    ] = DEFAULT_OUTPUT,
    pipeline: Annotated[
        str | None,
        typer.Option(help="The pipeline's name. [default: the folder's]", show_default=False),
    ] = None,
    source: Annotated[
        SourceWord | None,
        typer.Option(help="Where changes come from. [default: postgres]", show_default=False),
    ] = None,
    dsn_variable: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The variable that has the connection string. [default: DATABASE_URL]",
            show_default=False,
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Tables of Postgres, schema.table with * and ?; may be repeated. "
            "[default: public.*]",
            show_default=False,
        ),
    ] = None,
    catalog: Annotated[
        CatalogWord | None,
        typer.Option(help="The kind of Iceberg catalog. [default: sql]", show_default=False),
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option(help="Where tables are kept. [default: ./lake]", show_default=False),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", "--yes", help="Write over a file that is there.")
    ] = False,
) -> None:
    """Write a first configuration, commented; on a terminal, prompts for what no option gives.

    \b
    frazil init
    frazil init --pipeline shop --source postgres --warehouse s3://bucket/lake
    """  # noqa: D301
    from frazil.cli.verbs.init import InitRequest, write_first_document

    given = {
        "pipeline": pipeline,
        "source": source,
        "dsn_variable": dsn_variable,
        "table": ",".join(table) if table else None,
        "catalog": catalog,
        "warehouse": warehouse,
    }
    write_first_document(InitRequest(output, given, force=force))
