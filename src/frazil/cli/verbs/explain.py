"""Verbs that need no configuration."""

from __future__ import annotations

import platform
from difflib import get_close_matches
from importlib.metadata import version
from typing import TYPE_CHECKING

from frazil.cli.output import OutputFormat, write_json, write_line, write_table
from frazil.clients.spark.jars import ICEBERG_VERSION
from frazil.clients.spark.java import find_java
from frazil.errors import ConfigError, RuntimeMissingError, leaves
from frazil.pipeline.recovery import RECOVERY, Recovery, RecoveryAction
from frazil.version import __version__

if TYPE_CHECKING:
    from frazil.errors import FrazilError

_DESCRIPTIONS = {
    RecoveryAction.NOW: "the work is planned again at once",
    RecoveryAction.LATER: "frazil tries again with back-off",
    RecoveryAction.NEVER: "the table is paused until an operator acts; the others go on",
    RecoveryAction.INSPECT: "frazil inspects the table for what happened, then the work goes on",
    RecoveryAction.STOP: "the process ends; another one may go on",
}


def show_version(output: OutputFormat) -> None:
    """Print the versions that a bug report should name."""
    try:
        java = str(find_java().major)
    except RuntimeMissingError:
        java = "none usable"
    versions = {
        "frazil": __version__,
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
        "iceberg": ICEBERG_VERSION,
        "java": java,
    }
    if output is OutputFormat.JSON:
        write_json(versions)
        return
    for name, number in versions.items():
        write_line(f"{name} {number}")


def explain_code(code: str | None, output: OutputFormat) -> None:
    """Print what a code means; all codes when none is named."""
    family = {leaf.code: leaf for leaf in leaves()}
    if code is None:
        _list_codes(family, output)
        return
    leaf = family.get(code.upper())
    if leaf is None:
        near = get_close_matches(code.upper(), family, n=1)
        hint = f"; did you mean {near[0]}?" if near else "."
        message = f"there is no error code {code}{hint}"
        raise ConfigError(message, next_step="frazil explain lists them all")
    recovery = RECOVERY[leaf]
    if output is OutputFormat.JSON:
        write_json(_as_json(leaf, recovery))
        return
    write_line(f"{leaf.code}  {leaf.__name__}")
    write_line(f"  What it means:    {leaf.meaning}")
    write_line(f"  What you do:      {leaf.remedy}")
    write_line(f"  What frazil does: {describe_recovery(recovery)}.")


def describe_recovery(recovery: Recovery) -> str:
    """A row of the recovery table as a sentence, without its full stop."""
    first = _DESCRIPTIONS[recovery.action]
    if recovery.after_attempts is recovery.action:
        return first
    return f"{first}; after the configured attempts, {_DESCRIPTIONS[recovery.after_attempts]}"


def _list_codes(family: dict[str, type[FrazilError]], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        write_json([_as_json(leaf, RECOVERY[leaf]) for leaf in family.values()])
        return
    rows = [(leaf.code, leaf.__name__, leaf.meaning) for leaf in family.values()]
    write_table(rows, header=("CODE", "ERROR", "MEANING"))


def _as_json(leaf: type[FrazilError], recovery: Recovery) -> dict[str, str]:
    return {
        "code": leaf.code,
        "error": leaf.__name__,
        "meaning": leaf.meaning,
        "remedy": leaf.remedy,
        "action": recovery.action.value,
        "after_attempts": recovery.after_attempts.value,
    }
