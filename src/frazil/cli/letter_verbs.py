"""The verbs of dead letters and their options; as in ``app``, only signatures and help."""

from __future__ import annotations

from typing import Annotated

import typer

from frazil.cli.options import Document, Format, invocation_of
from frazil.cli.output import OutputFormat

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]...", help="Ids as dlq ls shows them.", show_default=False),
]
LettersOf = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="TABLE",
        help="Only those of this table, by its name at the source. [default: all]",
        show_default=False,
    ),
]
Reason = Annotated[
    str | None,
    typer.Option(
        metavar="REASON",
        help="Only those rejected for this reason, such as invalid. [default: all]",
        show_default=False,
    ),
]
Everything = Annotated[
    bool, typer.Option("--all", help="Every letter, or those of --table and --reason.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show it, change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]

letters_app = typer.Typer(
    help="List, show, replay or drop records that could not become rows.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@letters_app.command("ls")
def dlq_ls(
    context: typer.Context,
    *,
    table: LettersOf = None,
    reason: Reason = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, oldest first.")] = 100,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """List dead letters: where each was read, why it was rejected, and how often.

    \b
    frazil dlq ls -c frazil.yaml
    frazil dlq ls -c frazil.yaml --table orders --reason invalid -o json
    """  # noqa: D301
    from frazil.cli.verbs.dead_letters import LetterFilter, list_letters

    chosen = LetterFilter(table=table, reason=reason)
    list_letters(chosen, limit, invocation_of(context, config, output))


@letters_app.command("show")
def dlq_show(
    context: typer.Context,
    letter: Annotated[str, typer.Argument(metavar="ID", help="The id that dlq ls shows.")],
    *,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Show one dead letter with its payload: text where it is UTF-8, else payload_base64.

    \b
    frazil dlq show -c frazil.yaml 0f3a9c51b7e2
    frazil dlq show -c frazil.yaml 0f3a9c51b7e2 -o json | jq -r .payload
    """  # noqa: D301
    from frazil.cli.verbs.dead_letters import show_letter

    show_letter(letter, invocation_of(context, config, output))


@letters_app.command("replay")
def dlq_replay(
    context: typer.Context,
    ids: Ids = None,
    *,
    everything: Everything = False,
    table: LettersOf = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Read dead letters again with today's settings; exit with 3 when some are still no rows.

    Rows are appended to their tables exactly once, and their letters removed. A source that keeps
    its dead letters itself gives the records to the next batch of the ingest, which does that.

    \b
    frazil dlq replay -c frazil.yaml 0f3a9c51b7e2 --yes
    frazil dlq replay -c frazil.yaml --all --table orders --yes -o json
    """  # noqa: D301
    from frazil.cli.verbs.dead_letters import LetterFilter, LetterRequest, replay_letters

    request = LetterRequest(
        ids=tuple(ids or ()),
        everything=everything,
        chosen=LetterFilter(table=table, reason=reason),
        dry_run=dry_run,
        yes=yes,
    )
    raise typer.Exit(replay_letters(request, invocation_of(context, config, output)))


@letters_app.command("drop")
def dlq_drop(
    context: typer.Context,
    ids: Ids = None,
    *,
    everything: Everything = False,
    table: LettersOf = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    config: Document = None,
    output: Format = OutputFormat.TABLE,
) -> None:
    """Remove dead letters for ever, after showing them; all in one commit.

    \b
    frazil dlq drop -c frazil.yaml 0f3a9c51b7e2 --yes
    frazil dlq drop -c frazil.yaml --all --table orders --reason invalid --dry-run
    """  # noqa: D301
    from frazil.cli.verbs.dead_letters import LetterFilter, LetterRequest, drop_letters

    request = LetterRequest(
        ids=tuple(ids or ()),
        everything=everything,
        chosen=LetterFilter(table=table, reason=reason),
        dry_run=dry_run,
        yes=yes,
    )
    drop_letters(request, invocation_of(context, config, output))
