"""The verbs and their options.

Only signatures and help live here. What a verb does is imported when it runs, so that help answers
at once and a mistake in the command line does not wait for Spark.
"""

from __future__ import annotations

# Typer reads these annotations when it runs, so they are not type-checking imports.
from pathlib import Path
from typing import Annotated

import typer

from frazil.cli.invocation import Invocation
from frazil.cli.output import OutputFormat
from frazil.model.marker import Role  # noqa: TC001 - Typer reads annotations when it runs

app = typer.Typer(
    name="frazil",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(
    help="Look at the configuration as frazil understands it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(config_app, name="config")
decode_app = typer.Typer(
    help="Look into a file without the table it belongs to.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(decode_app, name="decode")
position_app = typer.Typer(
    help="See how far tables have come, and repair a marker that was lost.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(position_app, name="position")
index_app = typer.Typer(
    help="Look at the key index of a mirror, check it, build it anew.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(index_app, name="index")

Document = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="The configuration document. [default: $CONFIG_FILE, else frazil.yaml]",
        show_default=False,
    ),
]
Format = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="A table for people, JSON for programs.")
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


def _invocation(context: typer.Context) -> Invocation:
    return context.ensure_object(Invocation)


@app.callback()
def frazil(
    *,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the stack trace of an error.")
    ] = False,
) -> None:
    """Streams of changes become Apache Iceberg tables.

    \b
    frazil demo                          see it work on embedded services
    frazil config show -c frazil.yaml    see what a configuration means
    """  # noqa: D301 - \b keeps the examples' line breaks
    # The option is read by main(), which must know it also when parsing itself fails.
    del debug


@app.command()
def version(*, output: Format = OutputFormat.TABLE) -> None:
    """Show the versions of frazil and of what it runs on.

    \b
    frazil version
    frazil version -o json
    """  # noqa: D301
    from frazil.cli.verbs import show_version

    show_version(output)


@app.command()
def explain(
    code: Annotated[
        str | None, typer.Argument(help="An error code, such as FRZ-CFG-01.", show_default=False)
    ] = None,
    *,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Say what an error code means, or list them all.

    \b
    frazil explain FRZ-CFG-01
    frazil explain -o json
    """  # noqa: D301
    from frazil.cli.verbs import explain_code

    explain_code(code, output)


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
    from frazil.cli.config_verbs import show_configuration

    show_configuration([config, *(more or [])], output, _invocation(context))


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON Schema of the configuration document.

    \b
    frazil config schema > frazil.schema.json
    frazil config schema | jq '.properties | keys'
    """  # noqa: D301
    from frazil.cli.config_verbs import print_schema

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
    from frazil.cli.decode_verbs import show_puffin

    show_puffin(file, output)


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
    from frazil.cli.position_verbs import show_positions

    show_positions(config, table, output, _invocation(context))


@position_app.command("set")
def position_set(
    context: typer.Context,
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="A mirror or changelog, namespace.table.")
    ],
    *,
    role: Annotated[Role, typer.Option(help="Whose marker: the changelog's or the mirror's.")],
    to: Annotated[str, typer.Option(metavar="POSITION", help="The position, as shown.")],
    source: Annotated[
        str | None,
        typer.Option(help="What it counts in. [default: as before]", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show it, change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Put a marker somewhere else, whatever it is now, and book that in the ledger.

    \b
    frazil position set public.users --role merge --to 5781947118336215154 --dry-run
    frazil position set public.users --role ingest --to 0/1A2B3C4D --yes
    """  # noqa: D301
    from frazil.cli.position_setting import SetRequest
    from frazil.cli.position_verbs import set_position

    request = SetRequest(table=table, role=role, to=to, source=source, dry_run=dry_run, yes=yes)
    set_position(config, request, output, _invocation(context))


@app.command()
def check(
    context: typer.Context,
    *,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Look at source, catalog and tables before a run; exit with 1 when something must be fixed.

    \b
    frazil check -c frazil.yaml
    frazil check -c frazil.yaml -o json | jq -r '.problems[].sql[]'
    """  # noqa: D301
    from frazil.cli.check_verb import run_checks

    raise typer.Exit(run_checks(config, output, _invocation(context)))


@app.command()
def plan(
    context: typer.Context,
    *,
    table: Tables = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 4 when there is work.")
    ] = False,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Show what the next merge would do; change nothing.

    \b
    frazil plan -c frazil.yaml
    frazil plan -c frazil.yaml --table public.users --exit-code
    """  # noqa: D301
    from frazil.cli.plan_verb import show_plans

    invocation = _invocation(context)
    raise typer.Exit(show_plans(config, table or [], output, invocation, exit_code=exit_code))


@app.command()
def merge(
    context: typer.Context,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Merge what is there, print what was done, and end.")
    ] = False,
    table: Tables = None,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Merge changelogs into their mirrors, on the interval until told to stop, or once.

    \b
    frazil merge -c frazil.yaml
    frazil merge -c frazil.yaml --once --table public.users -o json
    """  # noqa: D301
    from frazil.cli.merge_verb import run_merges

    raise typer.Exit(run_merges(config, table or [], output, _invocation(context), once=once))


@app.command()
def ingest(
    context: typer.Context,
    *,
    once: Annotated[
        bool,
        typer.Option("--once", help="Capture what is there now, print what was done, and end."),
    ] = False,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Capture changes of the source into changelogs, until told to stop, or once.

    \b
    frazil ingest -c frazil.yaml
    frazil ingest -c frazil.yaml --once -o json
    """  # noqa: D301
    from frazil.cli.ingest_verb import run_ingest

    raise typer.Exit(run_ingest(config, output, _invocation(context), once=once))


@app.command()
def resync(
    context: typer.Context,
    table: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TABLE]...",
            help="Tables by the name of source, changelog or mirror.",
            show_default=False,
        ),
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every table captured.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show it, change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Have tables read again from their first row, in order and without a gap for readers.

    \b
    frazil resync -c frazil.yaml public.users
    frazil resync -c frazil.yaml --all --dry-run
    """  # noqa: D301
    from frazil.cli.resync_verb import ResyncRequest, run_resync

    request = ResyncRequest(tuple(table or ()), everything=everything, dry_run=dry_run, yes=yes)
    run_resync(config, request, output, _invocation(context))


@app.command()
def verify(
    context: typer.Context,
    *,
    table: Tables = None,
    changelog: Annotated[
        bool,
        typer.Option("--changelog", help="Compare with the changelog, and not with the source."),
    ] = False,
    wait: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long a mirror may take to catch up. [default: as long as the pipeline may]",
            show_default=False,
        ),
    ] = None,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Prove that mirrors hold what the source has; exit with 4 when one does not.

    Without a Postgres source they are compared with what their changelogs say.

    \b
    frazil verify -c frazil.yaml
    frazil verify -c frazil.yaml --table public.users -o json
    """  # noqa: D301
    from frazil.cli.verify_verb import VerifyRequest, verify_mirrors

    request = VerifyRequest(tuple(table or ()), with_changelog=changelog, wait=wait)
    raise typer.Exit(verify_mirrors(config, request, output, _invocation(context)))


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
    from frazil.cli.index_verbs import show_index

    show_index(config, table, output, _invocation(context))


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
    from frazil.cli.index_verbs import check_index

    raise typer.Exit(check_index(config, table, output, _invocation(context)))


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
    from frazil.cli.index_verbs import renew_index

    renew_index(config, table, output, _invocation(context))


@app.command()
def teardown(
    context: typer.Context,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show it, change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Remove every trace at the source, after showing it; the tables of the lake stay.

    \b
    frazil teardown -c frazil.yaml --dry-run
    frazil teardown -c frazil.yaml --yes
    """  # noqa: D301
    from frazil.cli.teardown_verb import Agreement, run_teardown

    agreement = Agreement(dry_run=dry_run, yes=yes)
    run_teardown(config, agreement, output, _invocation(context))


@app.command()
def demo(
    context: typer.Context,
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave services running until Ctrl-C, to look around.")
    ] = False,
) -> None:
    """Take the tour on embedded services.

    \b
    frazil demo
    frazil demo --keep
    """  # noqa: D301
    from frazil.cli.demo_verb import run_demo

    run_demo(_invocation(context), keep=keep)
