"""The Dockerfile as steps, for checks without an engine and for a build in a plain chroot."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from tools.bootstrap import ROOT


@dataclass(frozen=True)
class Step:
    """An instruction with its words; those of COPY without options."""

    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """The arguments; an option has two dashes."""
        return [word for word in shlex.split(self.text) if not word.startswith("--")]

    @property
    def options(self) -> dict[str, str]:
        """What stands before the arguments, such as ``--from=build``."""
        found = (word for word in shlex.split(self.text) if word.startswith("--"))
        return {
            name.removeprefix("--"): value for name, _, value in (o.partition("=") for o in found)
        }


def steps() -> list[Step]:
    """Every instruction, in order."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", text)).splitlines()
    return [Step(*line.split(" ", 1)) for line in lines if line.strip()]


def stages() -> list[list[Step]]:
    """The instructions of each stage, which its FROM begins."""
    found: list[list[Step]] = []
    for step in steps():
        if step.name == "FROM":
            found.append([])
        if found:
            found[-1].append(step)
    return found


def last_stage() -> dict[str, Step]:
    """The last instruction of each name in the stage that is the image."""
    return {step.name: step for step in stages()[-1]}
