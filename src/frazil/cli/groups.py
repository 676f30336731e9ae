"""The verbs that come in groups, and their options; as in ``app``, only signatures and help."""

from __future__ import annotations

# Typer reads these annotations when it runs, so they are not type-checking imports.
from pathlib import Path  # noqa: TC003 - Typer reads annotations when it runs
from typing import Annotated

import typer

from frazil.cli.letter_verbs import letters_app
from frazil.cli.options import Document, Format, MirrorName, StoreDocument, invocation_of
from frazil.cli.output import OutputFormat
from frazil.model.marker import MarkerRole  # noqa: TC001 - Typer reads annotations when it runs


def _group(help_: str) -> typer.Typer:
    return typer.Typer(help=help_, no_args_is_help=True, rich_markup_mode=None)


config_app = _group("Show the configuration as frazil understands it.")
decode_app = _group("Decode a file without the table it belongs to.")
position_app = _group("See how far tables have come, and repair a marker that was lost.")
index_app = _group("Show, check or rebuild the key index of a mirror.")
GROUPS = {
    "config": config_app,
    "decode": decode_app,
    "position": position_app,
    "index": index_app,
    "dlq": letters_app,
}


@config_app.command("show")
def config_show(
    context: typer.Context,
    more: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="More documents.", show_default=False),
    ] = None,
    *,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Show the resolved document and where each value comes from.

    \b
    frazil config show -c frazil.yaml
    frazil config show -c frazil.yaml -o json | jq .document.catalog
    """  # noqa: D301
    from frazil.cli.verbs.config import show_configuration

    show_configuration(more or [], invocation_of(context, config, output))


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON Schema of the configuration document.

    \b
    frazil config schema > frazil.schema.json
    frazil config schema | jq '.properties | keys'
    """  # noqa: D301
    from frazil.cli.verbs.config import print_schema

    print_schema()


@decode_app.command("puffin")
def decode_puffin(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Puffin file on this machine.")],
    *,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Show the blobs of a Puffin file, and what its deletion vectors hold.

    \b
    frazil decode puffin 00000-deletes.puffin
    frazil decode puffin 00000-deletes.puffin -o json | jq .cardinality
    """  # noqa: D301
    from frazil.cli.verbs.decode.puffin import show_puffin

    show_puffin(file, output)


@decode_app.command("segment")
def decode_segment(
    context: typer.Context,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A segment or its index: a file here, or s3://bucket/key."
        ),
    ],
    *,
    records: Annotated[
        bool,
        typer.Option(
            "--records/--summary", help="Every record as a line of JSON, or only the batches."
        ),
    ] = False,
    config: StoreDocument = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Show the batches or the records of a KafScale segment, and check its checksums.

    Keys, values and headers of records are text where they are UTF-8, else {"base64": "..."}.

    \b
    frazil decode segment segment-00000000000000000000.kfs
    frazil decode segment s3://bucket/default/orders/0/segment-00000000000000000000.kfs --records
    """  # noqa: D301
    from frazil.cli.verbs.decode.segment import show_segment

    show_segment(file, invocation_of(context, config, output), records=records)


@position_app.command("show")
def position_show(
    context: typer.Context,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="[TABLE]", help="A mirror or changelog, namespace.table.", show_default=False
        ),
    ] = None,
    *,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Show the markers of the tables and of the ledger, and what is wrong with them.

    \b
    frazil position show -c frazil.yaml
    frazil position show -c frazil.yaml public.users -o json
    """  # noqa: D301
    from frazil.cli.verbs.position.verbs import show_positions

    show_positions(table, invocation_of(context, config, output))


@position_app.command("set")
def position_set(
    context: typer.Context,
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="A mirror or changelog, namespace.table.")
    ],
    *,
    role: Annotated[
        MarkerRole, typer.Option(help="Whose marker: the changelog's or the mirror's.")
    ],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="POSITION",
            help="The position, as shown. [default: that of the state that is there]",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="What it counts in. [default: as before]", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show it, change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Move a marker to another position, whatever it is now, and record that in the ledger.

    \b
    frazil position set public.users --role merge --dry-run
    frazil position set public.users --role ingest --to 0/1A2B3C4D --yes
    """  # noqa: D301
    from frazil.cli.verbs.position.verbs import SetRequest, set_position

    request = SetRequest(table=table, role=role, to=to, source=source, dry_run=dry_run, yes=yes)
    set_position(request, invocation_of(context, config, output))


@index_app.command("show")
def index_show(
    context: typer.Context,
    table: MirrorName,
    *,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Show what the key index of a mirror is made of, and whether a merge can use it.

    \b
    frazil index show -c frazil.yaml public.users
    frazil index show -c frazil.yaml public.users -o json
    """  # noqa: D301
    from frazil.cli.verbs.index import show_index

    show_index(table, invocation_of(context, config, output))


@index_app.command("verify")
def index_verify(
    context: typer.Context,
    table: MirrorName,
    *,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Compare the key index with the rows of its mirror; exit with 4 when they differ.

    \b
    frazil index verify -c frazil.yaml public.users
    frazil index verify -c frazil.yaml public.users -o json
    """  # noqa: D301
    from frazil.cli.verbs.index import check_index

    raise typer.Exit(check_index(table, invocation_of(context, config, output)))


@index_app.command("rebuild")
def index_rebuild(
    context: typer.Context,
    table: MirrorName,
    *,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Build the key index of a mirror from its rows, which stay as they are.

    \b
    frazil index rebuild -c frazil.yaml public.users
    frazil index rebuild -c frazil.yaml public.users -o json
    """  # noqa: D301
    from frazil.cli.verbs.index import renew_index

    renew_index(table, invocation_of(context, config, output))
