"""Build the image with buildah; ``make test-image``, whose tests then run it.

The base is made from Debian packages, so that no registry of images is needed. Where buildah cannot
build, every step of the Dockerfile is performed in a plain chroot instead; a machine that can do
neither gets the reason in one sentence.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.bootstrap import ROOT, TOOLS, say
from tools.commands import CommandError, output_of
from tools.deploy.chroot_build import perform_steps
from tools.deploy.debian_system import make_base

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = TOOLS / "image"
BASE = "localhost/frazil-base"
IMAGE = "localhost/frazil"
# Jars are compressed as they are, and are most of it.
LARGEST_PULL = 900 * 10**6
PROGRAMS = ("buildah", "mmdebstrap")
# Neither overlays nor the machine's own images are needed then.
BUILDAH = (
    "buildah", "--storage-driver=vfs", f"--root={FOLDER / 'storage'}", f"--runroot={FOLDER / 'run'}"
)  # fmt: skip


def main() -> int:
    """Exit 0 with the image built, or with the reason why this machine cannot."""
    if reason := _why_not():
        print(f"test-image: not on this machine, {reason}.")
        return 0
    # Namespaces are not needed either.
    os.environ["BUILDAH_ISOLATION"] = "chroot"
    try:
        with tempfile.TemporaryDirectory(prefix="frazil-image-") as scratch:
            archive = Path(scratch) / "base.tar"
            make_base(archive)
            asked = "as asked" if "--plain" in sys.argv else ""
            if reason := asked or _why_no_containers(archive):
                print(f"test-image: in a plain chroot, {reason}.")
                print(f"test-image: {perform_steps(archive)} steps of the Dockerfile succeeded.")
                return 0
        say("building the image (three minutes)")
        output_of(
            [*BUILDAH, "build", "--format=docker", f"--build-arg=BASE={BASE}", f"--tag={IMAGE}",
             str(ROOT)]
        )  # fmt: skip
    except CommandError as error:
        print(f"test-image: {error}", file=sys.stderr)
        return 1
    return _judge_size()


def _judge_size() -> int:
    """What a node pulls is bounded; what that becomes on its disk is printed as well."""
    with mounted() as root, tempfile.TemporaryDirectory(prefix="frazil-image-") as scratch:
        unpacked = sum(each.lstat().st_size for each in root.rglob("*") if not each.is_dir())
        pulled = bytes_to_pull(Path(scratch))
    print(f"test-image: built; {pulled / 1e6:.0f} MB to pull, {unpacked / 1e6:.0f} MB unpacked.")
    if pulled > LARGEST_PULL:
        print(f"test-image: more than {LARGEST_PULL / 1e6:.0f} MB.", file=sys.stderr)
        return 1
    return 0


def is_built() -> bool:
    """Whether there is an image to look at."""
    if shutil.which("buildah") is None or not FOLDER.is_dir() or os.geteuid() != 0:
        return False
    listed = subprocess.run(
        [*BUILDAH, "images", "--quiet", IMAGE], capture_output=True, text=True, check=False
    )
    return bool(listed.stdout.strip())


def configuration() -> dict[str, Any]:
    """What the image tells an engine: user, entry point, health check, labels."""
    found = json.loads(output_of([*BUILDAH, "inspect", "--type=image", IMAGE]))
    return dict(found["Docker"]["config"])


@contextmanager
def mounted() -> Iterator[Path]:
    """The file system of a container of the image."""
    container = output_of([*BUILDAH, "from", "--pull-never", IMAGE]).strip()
    try:
        yield Path(output_of([*BUILDAH, "mount", container]).strip())
    finally:
        output_of([*BUILDAH, "rm", container])


def bytes_to_pull(folder: Path) -> int:
    """What a node fetches: the layers as a registry keeps them."""
    output_of([*BUILDAH, "push", "--quiet", IMAGE, f"dir:{folder}"])
    return sum(each.stat().st_size for each in folder.iterdir())


def _why_not() -> str:
    if os.geteuid() != 0:
        return "where it would have to run as root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing and shutil.which("apt-get") is not None:
        say(f"installing {' and '.join(missing)}")
        install = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
        for command in (["apt-get", "update"], install):
            subprocess.run(command, capture_output=True, check=False)
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"which lacks {' and '.join(missing)} and has no apt-get that brings them"
    return ""


def _why_no_containers(archive: Path) -> str:
    """The base becomes an image, and a command runs in it; else the reason."""
    # What an earlier build left is not taken for this one's.
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    try:
        container = output_of([*BUILDAH, "from", "scratch"]).strip()
        output_of([*BUILDAH, "add", container, str(archive), "/"])
        output_of([*BUILDAH, "commit", "--quiet", container, BASE])
        output_of([*BUILDAH, "run", container, "--", "true"])
        output_of([*BUILDAH, "rm", container])
    except CommandError as error:
        return f"because buildah cannot run containers here: {error.last_line}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
