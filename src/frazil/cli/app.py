"""The verbs and their options.

Only signatures and help are here. What a verb does is imported when it runs, so that help answers
at once and a mistake in the command line does not wait for Spark.
"""

from __future__ import annotations

# Typer reads these annotations when it runs, so they are not type-checking imports.
from pathlib import Path
from typing import Annotated

import typer

from frazil.cli.groups import GROUPS
from frazil.cli.options import Document, Format, Readers, Tables, invocation_of
from frazil.cli.output import OutputFormat
from frazil.model.policy import (  # noqa: TC001 - as above
    CatalogKind,
    DemoSource,
    FirstSource,
    JobKind,
)

app = typer.Typer(
    name="frazil",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _group in GROUPS.items():
    app.add_typer(_group, name=_name)


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
def init(
    *,
    output: Annotated[
        Path,
        typer.Option("--output", "--config", "-c", help="Where to write it; - for the terminal."),
    ] = Path("frazil.yaml"),
    pipeline: Annotated[
        str | None,
        typer.Option(help="The pipeline's name. [default: the folder's]", show_default=False),
    ] = None,
    source: Annotated[
        FirstSource | None,
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
        CatalogKind | None,
        typer.Option(help="The kind of Iceberg catalog. [default: sql]", show_default=False),
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option(help="Where tables are kept. [default: ./lake]", show_default=False),
    ] = None,
    reader: Readers = None,
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
        "reader": ",".join(reader) if reader else None,
    }
    write_first_document(InitRequest(output, given, force=force))


@app.command()
def setup(
    *,
    prepare: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Also put everything into this folder, for machines without network.",
            show_default=False,
        ),
    ] = None,
    offline: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Take everything from a prepared folder; no network is used.",
            show_default=False,
        ),
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Also what only the demo and the tests need.")
    ] = False,
    demo_only: Annotated[
        bool, typer.Option("--demo-only", help="Only what the demo needs: fewer jars.")
    ] = False,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Bring what pip does not: a Java, unless there is one, and Spark's jars, checked.

    \b
    frazil setup
    frazil setup --offline /mnt/frazil
    """  # noqa: D301
    from frazil.cli.verbs.setup import SetupRequest, set_machine_up
    from frazil.clients.spark.provisioning import Extent

    everything = Extent.EVERYTHING if demo else Extent.PRODUCTION
    extent = Extent.DEMO if demo_only else everything
    request = SetupRequest(prepare=prepare, offline=offline, extent=extent)
    set_machine_up(request, output)


@app.command()
def version(*, output: Format = OutputFormat.TABLE) -> None:
    """Show the versions of frazil and of what it runs on.

    \b
    frazil version
    frazil version -o json
    """  # noqa: D301
    from frazil.cli.verbs.explain import show_version

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
    from frazil.cli.verbs.explain import explain_code

    explain_code(code, output)


@app.command()
def check(
    context: typer.Context,
    *,
    reader: Readers = None,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Check source, catalog and tables before a run; exit with 1 when something must be fixed.

    \b
    frazil check -c frazil.yaml --reader trino
    frazil check -c frazil.yaml -o json | jq -r '.problems[].sql[]'
    """  # noqa: D301
    from frazil.cli.verbs.check import run_checks

    raise typer.Exit(run_checks(invocation_of(context, config, output), reader or ()))


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
    """Show what the next run would create, change, copy and merge; change nothing.

    \b
    frazil plan -c frazil.yaml
    frazil plan -c frazil.yaml --table public.users --exit-code
    """  # noqa: D301
    from frazil.cli.verbs.plan import show_plans

    invocation = invocation_of(context, config, output)
    raise typer.Exit(show_plans(table or [], invocation, exit_code=exit_code))


@app.command()
def run(
    context: typer.Context,
    *,
    once: Annotated[
        bool,
        typer.Option("--once", help="Bring mirrors up to date, print what was done, and end."),
    ] = False,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Capture changes and merge them into mirrors, until stopped, or once.

    \b
    frazil run -c frazil.yaml
    frazil run -c frazil.yaml --once -o json
    """  # noqa: D301
    from frazil.cli.verbs.run import run_pipeline

    raise typer.Exit(run_pipeline(invocation_of(context, config, output), once=once))


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
    """Merge changelogs into their mirrors, on the interval until stopped, or once.

    \b
    frazil merge -c frazil.yaml
    frazil merge -c frazil.yaml --once --table public.users -o json
    """  # noqa: D301
    from frazil.cli.verbs.run import run_merges

    raise typer.Exit(run_merges(table or [], invocation_of(context, config, output), once=once))


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
    """Capture changes of the source into changelogs, until stopped, or once.

    \b
    frazil ingest -c frazil.yaml
    frazil ingest -c frazil.yaml --once -o json
    """  # noqa: D301
    from frazil.cli.verbs.run import run_ingest

    raise typer.Exit(run_ingest(invocation_of(context, config, output), once=once))


@app.command()
def maintain(
    context: typer.Context,
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Do what is needed now, print the result, and end.")
    ] = False,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="TABLE",
            help="Only this table of the lake; may be repeated. [default: all]",
            show_default=False,
        ),
    ] = None,
    job: Annotated[
        list[JobKind] | None,
        typer.Option(help="Only jobs of this kind; may be repeated. [default: all]"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show it, change nothing.")] = False,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Keep tables small and fast: on the interval until stopped, or once.

    \b
    frazil maintain -c frazil.yaml --once
    frazil maintain -c frazil.yaml --dry-run --job expire --table public.users
    """  # noqa: D301
    from frazil.cli.verbs.maintain import MaintainRequest, maintain_tables

    request = MaintainRequest(tuple(table or ()), tuple(job or ()), once=once, dry_run=dry_run)
    raise typer.Exit(maintain_tables(request, invocation_of(context, config, output)))


@app.command()
def status(
    context: typer.Context,
    *,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every second, until Ctrl-C.")
    ] = False,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Show the state of every table and what went wrong; exit with 3 when one is stopped.

    Queries the running process; if none answers, reads markers and ledger.

    \b
    frazil status -c frazil.yaml --watch
    frazil status -c frazil.yaml -o json | jq '.stopped'
    """  # noqa: D301
    from frazil.cli.verbs.status.verb import show_status

    raise typer.Exit(show_status(invocation_of(context, config, output), watch=watch))


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
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Copy tables again from their first row, without a gap for readers.

    Without a source, mirrors are built again from everything that their changelogs hold.

    \b
    frazil resync -c frazil.yaml public.users
    frazil resync -c frazil.yaml --all --dry-run
    """  # noqa: D301
    from frazil.cli.verbs.resync import ResyncRequest, run_resync

    request = ResyncRequest(tuple(table or ()), everything=everything, dry_run=dry_run, yes=yes)
    run_resync(request, invocation_of(context, config, output))


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

    Without a source that gives its rows they are compared with what their changelogs say.

    \b
    frazil verify -c frazil.yaml
    frazil verify -c frazil.yaml --table public.users -o json
    """  # noqa: D301
    from frazil.cli.verbs.verify import VerifyRequest, verify_mirrors

    request = VerifyRequest(tuple(table or ()), with_changelog=changelog, wait=wait)
    raise typer.Exit(verify_mirrors(request, invocation_of(context, config, output)))


@app.command()
def teardown(
    context: typer.Context,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show it, change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Remove what the pipeline created at the source, after showing it; tables of the lake stay.

    \b
    frazil teardown -c frazil.yaml --dry-run
    frazil teardown -c frazil.yaml --yes
    """  # noqa: D301
    from frazil.cli.verbs.teardown import Agreement, run_teardown

    agreement = Agreement(dry_run=dry_run, yes=yes)
    run_teardown(agreement, invocation_of(context, config, output))


@app.command()
def demo(
    context: typer.Context,
    source: Annotated[
        DemoSource | None,
        typer.Argument(
            metavar="[postgres|kafscale]",
            help="Where changes come from. [default: postgres]",
            show_default=False,
        ),
    ] = None,
    *,
    folder: Annotated[
        Path, typer.Option("--folder", help="Where the lake is made, and stays.")
    ] = Path("frazil-demo"),
    seconds: Annotated[
        float, typer.Option("--seconds", help="How long it is watched once all is captured.")
    ] = 15.0,
    rows: Annotated[
        int,
        typer.Option(
            "--rows",
            min=20_000,
            help="Rows of the largest table, for the comparison with MERGE INTO.",
        ),
    ] = 2_000_000,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave everything running until Ctrl-C, to explore.")
    ] = False,
) -> None:
    """Capture a demo shop, in Postgres or in topics of KafScale, into a lake, and verify it.

    \b
    frazil demo --keep
    frazil demo kafscale
    """  # noqa: D301
    # Before the rest is imported, which takes a moment in which Ctrl-C may come.
    from frazil.cli.process.interrupting import Interrupts, interruptible
    from frazil.telemetry.progress import doing

    def tour(interrupts: Interrupts) -> int:
        with doing("loading"):
            from frazil.cli.verbs.demo import DemoOptions, run_demo

        options = DemoOptions(folder=folder, seconds=seconds, rows=rows, keep=keep, source=source)
        return run_demo(options, invocation_of(context).redactor, interrupts)

    raise typer.Exit(interruptible(tour))
