"""Options that several verbs have."""

from __future__ import annotations

# Typer reads these annotations when it runs, so they are not type-checking imports.
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from frazil.cli.invocation import Invocation
from frazil.cli.output import OutputFormat
from frazil.model.readers import Reader

Document = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="The configuration document. [default: $CONFIG_FILE, else frazil.yaml]",
        show_default=False,
    ),
]
StoreDocument = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="The document whose storage.s3 is used. [default: the AWS variables]",
        show_default=False,
    ),
]
Format = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="A table for people, JSON for programs.")
]
Readers = Annotated[
    list[Reader] | None,
    typer.Option(
        "--reader",
        help="Who reads the tables; may be repeated. [default: spark]",
        show_default=False,
    ),
]
Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="TABLE",
        help="Only this table, by mirror or changelog; may be repeated. [default: all]",
        show_default=False,
    ),
]
MirrorName = Annotated[
    str, typer.Argument(metavar="TABLE", help="A mirror or its changelog, namespace.table.")
]


def invocation_of(
    context: typer.Context, document: Path | None = None, output: OutputFormat = OutputFormat.TABLE
) -> Invocation:
    """What every verb of this command line shares, with its options."""
    return replace(context.ensure_object(Invocation), document=document, output=output)
