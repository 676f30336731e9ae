"""The verbs under ``dlq``: list dead letters, show one, replay or drop some.

``show`` is the one place where a payload is printed, and only to stdout.
"""

from __future__ import annotations

import sys
from base64 import b64encode
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import typer

from frazil.cli.exit_codes import ExitCode
from frazil.cli.output import (
    OutputFormat,
    write_json,
    write_line,
    write_note,
    write_table,
    write_text,
)
from frazil.errors import ConfigError
from frazil.ingest.replay import ReplayReport
from frazil.model.humanize import counted
from frazil.model.records.rejected_record import RejectReason
from frazil.pipeline.letters.dead_letters import opened_letters
from frazil.pipeline.letters.replay import require_replay

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from frazil.cli.invocation import Invocation
    from frazil.model.records.dead_letter import DeadLetter
    from frazil.pipeline.letters.dead_letters import PipelineLetters
    from frazil.telemetry.redaction import Redactor

HEADER = ("ID", "TABLE", "POSITION", "REASON", "FIRST SEEN", "ATTEMPTS", "BYTES", "MESSAGE")
REPLAYED_HEADER = ("ID", "TABLE", "POSITION", "OUTCOME")
_LISTING = "frazil dlq ls lists them"
# An operator who decides about more of them reads a number, not a list.
_MOST_PREVIEWED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Which letters are listed."""

    table: str | None = None
    reason: str | None = None

    def check(self) -> None:
        """Refuse a reason that no letter can have."""
        if self.reason is not None and self.reason not in set(RejectReason):
            message = f"--reason: {self.reason!r} is none of {', '.join(RejectReason)}."
            raise ConfigError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRequest:
    """Letters that the operator wants to change."""

    ids: tuple[str, ...]
    everything: bool
    chosen: LetterFilter = LetterFilter()
    dry_run: bool
    yes: bool

    def check(self, doing: str) -> None:
        """Refuse what is not clear, before anything is opened."""
        self.chosen.check()
        if self.everything == bool(self.ids):
            message = "name the dead letters, or --all, not both."
            raise ConfigError(message, next_step=_LISTING)
        if self.ids and (self.chosen.table or self.chosen.reason):
            raise ConfigError("--table and --reason choose among --all.")
        if not (self.yes or self.dry_run or sys.stdin.isatty()):
            message = f"{doing} dead letters needs confirmation, and this is no terminal."
            step = "preview with --dry-run, then repeat with --yes"
            raise ConfigError(message, next_step=step)


def list_letters(chosen: LetterFilter, limit: int, invocation: Invocation) -> None:
    """Print the oldest letters, and on stderr whether there are more."""
    chosen.check()
    config = invocation.load_quietly()
    with opened_letters(config) as letters:
        found: list[DeadLetter] = []
        if letters is not None:
            every = letters.letters(table=chosen.table, reason=chosen.reason)
            found = list(islice(every, limit + 1))
    if len(found) > limit:
        write_note(f"the oldest {limit} are shown; there are more: see --limit")
    print_letters(found[:limit], invocation)


def show_letter(letter_id: str, invocation: Invocation) -> None:
    """Print one letter completely."""
    config = invocation.load_quietly()
    with opened_letters(config) as letters:
        (letter,) = load_named(letters, [letter_id])
        payload = b"" if letters is None else letters.payloads([letter_id]).get(letter_id, b"")
    shown = {**_as_json(letter, invocation.redactor), **_payload(payload)}
    if invocation.output is OutputFormat.JSON:
        write_json(shown)
        return
    for name, value in shown.items():
        if name != "payload":
            write_line(f"{name}: {value}")
    if "payload" in shown:
        write_line("payload:")
        write_text(str(shown["payload"]))


def drop_letters(request: LetterRequest, invocation: Invocation) -> None:
    """Show the letters, ask, and remove them in one commit."""
    request.check("dropping")
    config = invocation.load_quietly()
    with opened_letters(config) as letters:
        meant = load_meant(letters, request)
        if meant and not (request.yes or request.dry_run):
            preview(meant, invocation.redactor)
            typer.confirm("Drop them for ever?", abort=True, err=True)
        if meant and letters is not None and not request.dry_run:
            letters.drop([each.id for each in meant])
    if invocation.output is OutputFormat.JSON:
        applied = not request.dry_run
        ids = [each.id for each in meant]
        write_json({"dropped": ids, "applied": applied})
        return
    print_letters(meant, invocation)
    done = f"{counted(len(meant), 'dead letter')} dropped"
    write_line("nothing was changed: --dry-run" if request.dry_run else done)


def replay_letters(request: LetterRequest, invocation: Invocation) -> ExitCode:
    """Show the letters, ask, and read them again; ACTION_REQUIRED when some are still no rows."""
    request.check("replaying")
    config = invocation.load_quietly()
    require_replay(config)
    report = ReplayReport()
    with opened_letters(config) as letters:
        meant = load_meant(letters, request)
        if meant and letters is not None:
            replay = letters.prepare_replay({each.table for each in meant})
            if not (request.yes or request.dry_run):
                preview(meant, invocation.redactor)
                typer.confirm("Replay them?", abort=True, err=True)
            if not request.dry_run:
                report = replay(meant)
    _print_replayed(report, meant, request, invocation)
    return ExitCode.ACTION_REQUIRED if report.rejected or report.waiting else ExitCode.DONE


def _print_replayed(
    report: ReplayReport,
    meant: Sequence[DeadLetter],
    request: LetterRequest,
    invocation: Invocation,
) -> None:
    if invocation.output is OutputFormat.JSON:
        write_json(
            {
                "letters": [each.id for each in meant],
                "appended": list(report.appended),
                "pending": list(report.pending),
                "rejected": list(report.rejected),
                "waiting": list(report.waiting),
                "applied": not request.dry_run,
            }
        )
        return
    if request.dry_run:
        print_letters(meant, invocation)
        write_line("nothing was changed: --dry-run")
        return
    words = dict.fromkeys(report.appended, "appended")
    words |= dict.fromkeys(report.pending, "pending: the next batch of the ingest reads it")
    words |= dict.fromkeys(report.rejected, "still rejected: frazil dlq show tells why")
    words |= dict.fromkeys(report.waiting, "not passed yet: the ingest reads it itself")
    gone = "gone meanwhile"
    rows = [(each.id, each.table, each.position, words.get(each.id, gone)) for each in meant]
    write_table(rows, header=REPLAYED_HEADER)


def load_meant(letters: PipelineLetters | None, request: LetterRequest) -> Sequence[DeadLetter]:
    """The letters of a request; ConfigError for an id that none has."""
    if request.ids:
        return load_named(letters, request.ids)
    if letters is None:
        return ()
    chosen = request.chosen
    return tuple(letters.letters(table=chosen.table, reason=chosen.reason))


def load_named(letters: PipelineLetters | None, ids: Collection[str]) -> Sequence[DeadLetter]:
    """The letters with these ids."""
    found = () if letters is None else tuple(letters.letters(ids=ids))
    missing = sorted(set(ids) - {each.id for each in found})
    if missing:
        message = f"no dead letter has the id {', '.join(missing)}."
        raise ConfigError(message, next_step=_LISTING)
    return found


def preview(letters: Sequence[DeadLetter], redactor: Redactor) -> None:
    """What the operator decides about, on stderr."""
    for each in letters[:_MOST_PREVIEWED]:
        write_note(redactor.redact(f"{each.id}  {each.table}  {each.position}  {each.reason}"))
    if len(letters) > _MOST_PREVIEWED:
        write_note(f"and {len(letters) - _MOST_PREVIEWED} more")


def print_letters(letters: Sequence[DeadLetter], invocation: Invocation) -> None:
    """The result of a verb that lists letters."""
    redactor = invocation.redactor
    if invocation.output is OutputFormat.JSON:
        write_json([_as_json(each, redactor) for each in letters])
    else:
        write_table([_row(each, redactor) for each in letters], header=HEADER)


def _as_json(letter: DeadLetter, redactor: Redactor) -> dict[str, object]:
    return {
        "id": letter.id,
        "source": redactor.redact(letter.source),
        "table": letter.table,
        "position": letter.position,
        "reason": letter.reason,
        "message": redactor.redact(letter.message),
        "first_seen_at": letter.first_seen_at.isoformat(),
        "last_seen_at": letter.last_seen_at.isoformat(),
        "attempts": letter.attempts,
        "batch": letter.batch,
        "payload_bytes": letter.payload_bytes,
    }


def _row(letter: DeadLetter, redactor: Redactor) -> tuple[str, ...]:
    return (
        letter.id,
        letter.table,
        letter.position,
        letter.reason,
        f"{letter.first_seen_at:%Y-%m-%d %H:%M:%SZ}",
        str(letter.attempts),
        str(letter.payload_bytes),
        redactor.redact(letter.message),
    )


def _payload(data: bytes) -> dict[str, str]:
    """As text, if it is; what a terminal would obey is spelt when it is written."""
    try:
        return {"payload": data.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": b64encode(data).decode()}
