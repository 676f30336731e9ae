"""A container of the built image: its user, no capabilities, a root that nobody can write.

Buildah's containers without namespaces have a root that can be written. So the file system that
it built is mounted once more, read-only, in a mount namespace of our own; the network is the
machine's.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from tests.support.process.pipeline_process import PATIENCE_SECONDS
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping
    from pathlib import Path

# Arguments: the root, what to mount at /var/lib/frazil, /tmp and /etc/frazil, the working folder.
_START = """
mount --bind "$1" "$1"
mount --bind "$2" "$1/var/lib/frazil"
mount --bind "$3" "$1/tmp"
mount --bind "$4" "$1/etc/frazil"
mount -o remount,bind,ro "$1/etc/frazil"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount --bind /etc/hosts "$1/etc/hosts"
mount -o remount,bind,ro "$1"
root=$1 folder=$5
shift 5
exec chroot "$root" setpriv --reuid "$FRAZIL_UID" --regid "$FRAZIL_GID" --clear-groups \
    --no-new-privs --bounding-set=-all --inh-caps=-all \
    env -C "$folder" -u FRAZIL_UID -u FRAZIL_GID "$@"
"""


@dataclass(frozen=True)
class Container:
    """What an engine knows of it: the file system, the image's configuration, and its volumes."""

    root: Path
    configuration: dict[str, Any]
    volumes: Path

    def prepare(self) -> None:
        """Volumes of the image's user, as an engine makes them; the document goes into config."""
        (self.root / "etc" / "hosts").touch()
        for name in ("data", "tmp", "config"):
            (self.volumes / name).mkdir()
        user, _, group = self.configuration["User"].partition(":")
        os.chown(self.volumes / "data", int(user), int(group))
        (self.volumes / "tmp").chmod(0o1777)
        (self.volumes / "config").chmod(0o755)

    def command(self, *words: str) -> list[str]:
        """A program in it."""
        folders = (self.root, *(self.volumes / name for name in ("data", "tmp", "config")))
        private = ("unshare", "--mount", "--pid", "--fork", "--propagation=private")
        start = ("sh", "-euc", _START, "start")
        return [*private, *start, *map(str, folders), self.configuration["WorkingDir"], *words]

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """The image's variables, and these."""
        user, _, group = self.configuration["User"].partition(":")
        own = dict(each.split("=", 1) for each in self.configuration["Env"])
        # The programs that start it are the machine's; they are in the image's PATH too.
        path = f"{own['PATH']}:/usr/sbin:/sbin"
        return own | {"PATH": path, "FRAZIL_UID": user, "FRAZIL_GID": group} | dict(given)

    def run(self, *words: str, **given: str) -> subprocess.CompletedProcess[str]:
        """A program to its end."""
        return subprocess.run(
            self.command(*words), env=self.environment(given),
            capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
        )  # fmt: skip

    def frazil(self, *words: str, **given: str) -> subprocess.CompletedProcess[str]:
        """The entry point with other words than the image's."""
        return self.run(*self.configuration["Entrypoint"], *words, **given)

    def check_health(self, **given: str) -> int:
        """What the image's health check exits with."""
        kind, *words = self.configuration["Healthcheck"]["Test"]
        assert kind == "CMD"
        return self.run(*words, **given).returncode

    def start(self, log: Path, **given: str) -> subprocess.Popen[bytes]:
        """As an engine starts it: entry point and command of the image."""
        words = (*self.configuration["Entrypoint"], *self.configuration["Cmd"])
        with log.open("wb") as output:
            return subprocess.Popen(
                self.command(*words), env=self.environment(given), stdout=output, stderr=output
            )


def stop(process: subprocess.Popen[bytes], number: signal.Signals) -> int:
    """An engine signals the first process of the container."""
    outside = psutil.Process(process.pid)
    wait_until(lambda: bool(outside.children()), 60)
    (first,) = outside.children()
    first.send_signal(number)
    return process.wait(PATIENCE_SECONDS)
