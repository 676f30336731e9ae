"""The verb ``setup``: Java and jars for this machine, or for others without network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.cli.output import OutputFormat, write_json, write_note, write_table
from frazil.clients.spark.provisioning import Extent, Provisions, prepare, provision
from frazil.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class SetupRequest:
    """What the operator typed: a folder to fill, or one to take everything from."""

    prepare: Path | None
    offline: Path | None
    extent: Extent


def set_machine_up(request: SetupRequest, output: OutputFormat) -> None:
    """Bring what is missing, and print what is there then."""
    provisions = _provide(request)
    java, jars = provisions.java, provisions.jars
    if output is OutputFormat.JSON:
        write_json(
            {
                "java": {"version": java.major, "home": str(java.home)},
                "jars": {"count": len(jars), "folder": str(jars[0].parent)},
                "prepared": None if request.prepare is None else str(request.prepare),
            }
        )
        return
    rows = [
        ("java", f"{java.major}", str(java.home)),
        ("jars", f"{len(jars)}", str(jars[0].parent)),
    ]
    if request.prepare is not None:
        rows.append(("folder", "", str(request.prepare)))
    write_table(rows, header=("PART", "FOUND", "WHERE"))


def _provide(request: SetupRequest) -> Provisions:
    if request.prepare is not None and request.offline is not None:
        raise ConfigError("--prepare fills a folder and --offline uses one: give one of them.")
    if request.prepare is not None:
        return prepare(request.prepare, _say, extent=request.extent)
    if request.offline is not None and not request.offline.is_dir():
        message = f"{request.offline} is not a folder."
        raise ConfigError(message, next_step="name one that `frazil setup --prepare` has filled")
    return provision(_say, extent=request.extent, prepared=request.offline)


def _say(line: str) -> None:
    write_note(f"setup: {line}")
