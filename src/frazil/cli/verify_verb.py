"""The verb ``verify``: proof that mirrors are what their changelogs make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.cli.exit_codes import ExitCode
from frazil.cli.facts import fields_to_json
from frazil.cli.output import OutputFormat, write_json, write_line, write_table
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark import open_session
from frazil.errors import FrazilError
from frazil.merge.verifying import verify_mirror
from frazil.pipeline.assemble import check_merges, load_merges
from frazil.telemetry.logs import LogLevel, LogSettings, configure_logs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from frazil.cli.invocation import Invocation
    from frazil.merge.verifying import Verification
    from frazil.telemetry.redaction import Redactor

HEADER = (
    "TABLE", "VERDICT", "EXPECTED", "FOUND", "MISSING", "SURPLUS", "DIFFERENT", "UNJUDGED",
    "THROUGH", "PROBLEM",
)  # fmt: skip


def verify_mirrors(
    document: Path | None, tables: Sequence[str], output: OutputFormat, invocation: Invocation
) -> ExitCode:
    """Compare each mirror with the fold of its changelog; a table in trouble is told, not raised.

    The status tells the gravest thing found: a difference before a table that cannot be judged.
    """
    config = invocation.load(document).config
    check_merges(config, tables)
    configure_logs(LogSettings(level=LogLevel.WARNING), invocation.redactor)
    found: dict[str, Verification | FrazilError] = {}
    with open_session(config) as session:
        lake = Lake(session, config.catalog.name)
        for mirror, settings in load_merges(lake, config, tables).items():
            try:
                found[mirror] = verify_mirror(
                    session,
                    lake,
                    settings,
                    show_keys=config.telemetry.log.values,
                )
            except FrazilError as error:
                found[mirror] = error
    _print(found, output, invocation.redactor)
    return exit_code_of(tuple(found.values()))


def exit_code_of(found: Sequence[Verification | FrazilError]) -> ExitCode:
    """4 for a difference, else 3 when something could not be judged."""
    failed = any(isinstance(each, FrazilError) for each in found)
    if any(not isinstance(each, FrazilError) and not each.agrees for each in found):
        return ExitCode.DIFFERENCE
    unjudged = any(not isinstance(each, FrazilError) and each.unjudged for each in found)
    return ExitCode.NEEDS_A_PERSON if failed or unjudged else ExitCode.DONE


def _print(
    found: dict[str, Verification | FrazilError], output: OutputFormat, redactor: Redactor
) -> None:
    if output is OutputFormat.JSON:
        write_json([_as_json(table, each, redactor) for table, each in found.items()])
        return
    write_table([_row(table, each, redactor) for table, each in found.items()], header=HEADER)
    for table, each in found.items():
        if not isinstance(each, FrazilError):
            for sample in each.samples:
                key = f"  {redactor.redact(sample.key)}" if sample.key is not None else ""
                write_line(f"{table}: {sample.kind.value:<9}  {sample.key_hash}{key}")


def _row(table: str, found: Verification | FrazilError, redactor: Redactor) -> tuple[str, ...]:
    if isinstance(found, FrazilError):
        problem = redactor.redact(f"{found.code}: {found}")
        return (table, "unknown", *["-"] * (len(HEADER) - 3), problem)
    numbers = (
        found.rows_expected, found.rows_found, found.missing, found.surplus, found.different,
        found.unjudged,
    )  # fmt: skip
    verdict = "agrees" if found.agrees else "differs"
    through = "-" if found.through is None else str(found.through)
    return (table, verdict, *map(str, numbers), through, found.note)


def _as_json(
    table: str, found: Verification | FrazilError, redactor: Redactor
) -> dict[str, object]:
    if isinstance(found, FrazilError):
        problem = {"code": found.code, "message": redactor.redact(str(found))}
        return {"table": table, "agrees": None, "problem": problem}
    facts = {name: redactor.scrub(each) for name, each in fields_to_json(found).items()}
    # As text, because many readers of JSON round such numbers.
    for name in ("snapshot_id", "through"):
        facts[name] = None if facts[name] is None else str(facts[name])
    return {"table": table, "agrees": found.agrees, "problem": None, **facts}
