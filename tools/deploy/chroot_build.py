"""Perform every step of the Dockerfile in a plain chroot, where containers cannot run."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from pathlib import Path

from tools.bootstrap import ROOT, say
from tools.commands import output_of
from tools.deploy.dockerfile import Step, stages


def perform_steps(archive: Path) -> int:
    """Each stage in a file system of its own, unpacked from this archive; how many steps ran."""
    with tempfile.TemporaryDirectory(prefix="frazil-chroot-") as scratch:
        built: dict[str, _Stage] = {}
        for number, stage in enumerate(stages()):
            root = Path(scratch) / str(number)
            root.mkdir()
            output_of(["tar", "--extract", f"--file={archive}", f"--directory={root}"])
            name = stage[0].words[2] if len(stage[0].words) > 1 else ""
            built[name] = _Stage(root, built)
            for step in stage[1:]:
                built[name].perform(step)
        return sum(each.performed for each in built.values())


class _Stage:
    """A file system that grows by instructions."""

    def __init__(self, root: Path, others: dict[str, _Stage]) -> None:
        self.root = root
        self._others = others
        self._folder = "/"
        self._environment = {"PATH": "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin"}
        self.performed = 0

    def perform(self, step: Step) -> None:
        """Those that change files; the others describe how an engine starts the image."""
        if step.name == "ENV":
            self._environment |= dict(word.split("=", 1) for word in shlex.split(step.text))
        elif step.name == "WORKDIR":
            self._folder = step.text
            self._inside(step.text).mkdir(parents=True, exist_ok=True)
        elif step.name == "RUN":
            self._run(step.text)
            self.performed += 1
        elif step.name == "COPY":
            self._copy(step)
            self.performed += 1

    def _inside(self, path: str) -> Path:
        return self.root / os.path.join(self._folder, path).lstrip("/")  # noqa: PTH118 - "/" wins

    def _run(self, text: str) -> None:
        say(f"chroot: {text.partition('&&')[0].strip()[:80]}")
        for name in ("resolv.conf", "hosts"):
            shutil.copy(f"/etc/{name}", self.root / "etc" / name)
        variables = [f"{name}={value}" for name, value in self._environment.items()]
        inside = ["sh", "-c", f"cd {self._folder} && {text}"]
        # A Java that is being installed asks for /proc, and what is mounted goes with the process.
        mount = (
            'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'
        )
        private = ["unshare", "--mount", "--propagation=private", "sh", "-c", mount]
        output_of([*private, str(self.root), "env", "-i", *variables, *inside])

    def _copy(self, step: Step) -> None:
        *sources, target = step.words
        origin = step.options.get("from")
        for source in sources:
            found = (
                ROOT / source if origin is None else self._others[origin].root / source.lstrip("/")
            )
            place = self._inside(target)
            if found.is_dir():
                shutil.copytree(found, place, symlinks=True, dirs_exist_ok=True)
            else:
                into = place / found.name if target.endswith("/") else place
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(found, into)
                into.chmod(int(step.options.get("chmod", "0644"), 8))
