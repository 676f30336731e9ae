"""The verb ``verify``: compares tables with their sources, or mirrors with their changelogs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from frazil.cli.exit_codes import ExitCode
from frazil.cli.output import OutputFormat, write_json, write_line, write_note, write_table
from frazil.cli.results.facts import fields_to_json
from frazil.cli.verbs.status.client import NoAnswer, request_status
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import open_session
from frazil.config.models.values import parse_duration
from frazil.errors import ConfigError, FrazilError
from frazil.model.command import command
from frazil.model.marker import MarkerRole
from frazil.pipeline.tables.captured_mirrors import load_captured_tables
from frazil.pipeline.tables.merge_settings import check_merges, plan_merges
from frazil.pipeline.verification import build_record_verifier, build_source_verifier
from frazil.telemetry.progress import doing
from frazil.verify.mirror_verifier import NOTHING_MERGED, verify_mirror
from frazil.verify.source_verifier import MERGE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from frazil.cli.invocation import Invocation
    from frazil.config import Config
    from frazil.model.table_name import TableName
    from frazil.pipeline.tables.captured_mirrors import CapturedMirror
    from frazil.telemetry.redaction import Redactor
    from frazil.verify.mirror_verifier import Verification
    from frazil.verify.record_verifier import RecordVerifier

HEADER = (
    "TABLE", "VERDICT", "EXPECTED", "FOUND", "MISSING", "SURPLUS", "DIFFERENT", "UNJUDGED",
    "THROUGH", "PROBLEM",
)  # fmt: skip
_RESYNC: Final = f"{command('resync')} "
NO_MIRROR = "it has no mirror: it has no key, or nothing of it was captured yet"


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """What the operator typed; without a wait, it is as long as the pipeline may need."""

    tables: tuple[str, ...] = ()
    with_changelog: bool = False
    wait: str | None = None


def verify_mirrors(request: VerifyRequest, invocation: Invocation) -> ExitCode:
    """Compare mirrors and tables of records; a problem of a table is reported, not raised.

    A captured mirror is compared with its source unless the changelog is requested, any other
    with the fold of its changelog; a table of records always with its source. The exit status is
    that of the gravest finding: a difference before a table that cannot be judged.
    """
    config = invocation.load_quietly()
    wait = _parsed(request.wait)
    check_merges(config, request.tables)
    found: dict[str, Verification | FrazilError] = {}
    with open_session(config) as session:
        lake = Lake(session, config.catalog.name)
        tables = load_captured_tables(lake, config)
        captured = tables.mirrors
        verifier = None
        if captured and not request.with_changelog:
            verifier = build_source_verifier(
                session,
                lake,
                config,
                wait=wait,
                merges_run=_is_merging(config),
                on_wait=_Waiting(),
            )
        recording = build_record_verifier(session, lake, config)
        recorded = _tables_of_records(recording, tables.changelogs)
        chosen = choose_records(request.tables, recorded)
        if recording is not None:
            found |= _verify_records(recording, chosen)
        # For the terminal; nothing of this goes to a log.
        show_keys = not config.telemetry.mask_keys
        others = [
            each
            for each in request.tables
            if each in captured or not choose_records([each], recorded)
        ]
        is_done = bool(chosen) and not others and (bool(request.tables) or not captured)
        merges = {} if is_done else plan_merges(config, others, captured=captured)
        for mirror, settings in merges.items():
            try:
                with doing(f"comparing {mirror}"):
                    if verifier is not None and mirror in captured:
                        source = captured[mirror].source
                        found[mirror] = verifier.verify(settings, source, show_keys=show_keys)
                    else:
                        compared = verify_mirror(session, lake, settings, show_keys=show_keys)
                        step = _step_of(compared, captured.get(mirror))
                        found[mirror] = replace(compared, next_step=step)
            except FrazilError as error:
                found[mirror] = error
    without = () if request.tables else [each for each in tables.without if each not in recorded]
    _print(found, without, invocation)
    return exit_code_of(tuple(found.values()))


def _tables_of_records(
    recording: RecordVerifier | None, changelogs: Mapping[str, TableName]
) -> Mapping[str, TableName]:
    if recording is None:
        return {}
    return {source: name for source, name in changelogs.items() if recording.has(source)}


def choose_records(
    requested: Sequence[str], recorded: Mapping[str, TableName]
) -> Mapping[str, TableName]:
    """Those tables of records that were named, as at the source or in the lake; all by default."""
    wanted = set(requested)
    return {
        source: name
        for source, name in recorded.items()
        if not wanted or wanted & {source, str(name)}
    }


def _verify_records(
    recording: RecordVerifier, chosen: Mapping[str, TableName]
) -> dict[str, Verification | FrazilError]:
    found: dict[str, Verification | FrazilError] = {}
    for source, name in chosen.items():
        try:
            with doing(f"comparing {name}"):
                found[str(name)] = recording.verify(name, source)
        except FrazilError as error:
            found[str(name)] = error
    return found


class _Waiting:
    """Prints once what is waited for."""

    def __init__(self) -> None:
        self._announced: set[str] = set()

    def __call__(self, mirror: str) -> None:
        if mirror not in self._announced:
            self._announced.add(mirror)
            write_note(f"{mirror}: waiting until the mirror has passed what the source has")


def _is_merging(config: Config) -> bool:
    """Whether a process of this pipeline answers and merges; one elsewhere is not queried."""
    try:
        answer = request_status(config)
    except ConfigError:
        # It has another token, and may be another pipeline.
        return False
    return not isinstance(answer, NoAnswer) and MarkerRole.MERGE.value in answer.roles


def _step_of(found: Verification, captured: CapturedMirror | None) -> str:
    """The next command for a mirror that was compared with its changelog."""
    if not found.differs:
        return MERGE if found.note == NOTHING_MERGED else ""
    return command("resync", found.mirror if captured is None else captured.source)


def next_command(found: Mapping[str, Verification | FrazilError]) -> str:
    """The one command to run first: differences before failures; empty: none."""
    judged = [each for each in found.values() if not isinstance(each, FrazilError)]
    differing = [each for each in judged if each.differs]
    again = [each for each in differing if each.next_step.startswith(_RESYNC)]
    if again:
        tables = dict.fromkeys(each.next_step.removeprefix(_RESYNC) for each in again)
        return _RESYNC + " ".join(tables)
    steps = [each.next_step for each in differing]
    steps += [
        each.next_step or each.remedy for each in found.values() if isinstance(each, FrazilError)
    ]
    steps += [each.next_step for each in judged]
    return next(filter(None, steps), "")


def _parsed(wait: str | None) -> timedelta | None:
    if wait is None:
        return None
    try:
        return parse_duration(wait)
    except ValueError as error:
        message = f"--wait: {wait!r} is not {error}."
        raise ConfigError(message, mistakes=(message,)) from None


def exit_code_of(found: Sequence[Verification | FrazilError]) -> ExitCode:
    """4 for a difference, else 3 when something could not be judged."""
    failed = any(isinstance(each, FrazilError) for each in found)
    if any(not isinstance(each, FrazilError) and each.differs for each in found):
        return ExitCode.DIFFERENCE
    unjudged = any(
        not isinstance(each, FrazilError) and (each.unjudged or each.is_behind) for each in found
    )
    return ExitCode.ACTION_REQUIRED if failed or unjudged else ExitCode.DONE


def _print(
    found: dict[str, Verification | FrazilError],
    without: Sequence[str],
    invocation: Invocation,
) -> None:
    redactor = invocation.redactor
    if invocation.output is OutputFormat.JSON:
        skipped = [
            {"table": name, "agrees": None, "problem": None, "note": NO_MIRROR} for name in without
        ]
        write_json([*(_as_json(table, each, redactor) for table, each in found.items()), *skipped])
        return
    rows = [_row(table, each, redactor) for table, each in found.items()]
    rows += [(name, "skipped", *["-"] * (len(HEADER) - 3), NO_MIRROR) for name in without]
    write_table(rows, header=HEADER)
    for table, each in found.items():
        if not isinstance(each, FrazilError):
            for sample in each.samples:
                key = f"  {redactor.redact(sample.key)}" if sample.key is not None else ""
                write_line(f"{table}: {sample.kind.value:<9}  {sample.key_hash}{key}")
            for difference in each.offsets:
                write_line(redactor.redact(f"{table}: {difference.problem:<9}  {difference}"))
    step = next_command(found)
    if step:
        write_line(redactor.redact(f"Next: {step}"))


def _row(table: str, found: Verification | FrazilError, redactor: Redactor) -> tuple[str, ...]:
    if isinstance(found, FrazilError):
        problem = redactor.redact(f"{found.code}: {found}")
        return (table, "unknown", *["-"] * (len(HEADER) - 3), problem)
    numbers = (
        found.rows_expected, found.rows_found, found.missing, found.surplus, found.different,
        found.unjudged,
    )  # fmt: skip
    through = found.position or ("-" if found.through is None else str(found.through))
    return (table, _verdict(found), *map(str, numbers), through, found.note)


def _verdict(found: Verification) -> str:
    if found.is_behind:
        return "behind"
    return "agrees" if found.agrees else "differs"


def _as_json(
    table: str, found: Verification | FrazilError, redactor: Redactor
) -> dict[str, object]:
    if isinstance(found, FrazilError):
        problem = {"code": found.code, "message": redactor.redact(str(found))}
        step = redactor.redact(found.next_step or found.remedy)
        return {"table": table, "agrees": None, "problem": problem, "next_step": step}
    facts = {name: redactor.scrub(each) for name, each in fields_to_json(found).items()}
    agrees = None if found.is_behind else found.agrees
    return {"table": table, "agrees": agrees, "problem": None, **facts}
