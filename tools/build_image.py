"""Build the image and run it as its user, with buildah; ``make test-image``.

The base is made from Debian packages, so that no registry of images is needed. A machine that
cannot do this is told why in one sentence; what needs no engine is in tests/deploy/test_image.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.bootstrap import ROOT, say

BASE = "localhost/frazil-base"
IMAGE = "localhost/frazil"
LARGEST_BYTES = 1400 * 2**20
PACKAGES = "python3,python3-venv,ca-certificates"


def main() -> int:
    """Exit 0 with the image built and run, or with the reason why this machine cannot."""
    if missing := [name for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]:
        print(f"test-image: not on this machine, which lacks {' and '.join(missing)}.")
        return 0
    if os.geteuid() != 0:
        print("test-image: not on this machine, where it would have to run as root.")
        return 0
    # Neither namespaces nor overlays are needed then.
    os.environ.update(BUILDAH_ISOLATION="chroot", STORAGE_DRIVER="vfs")
    with tempfile.TemporaryDirectory(prefix="frazil-image-") as scratch:
        make_base(Path(scratch) / "base.tar")
    say("building the image")
    run("buildah", "build", "--build-arg", f"BASE={BASE}", "--tag", IMAGE, str(ROOT))
    size = int(run("buildah", "inspect", "--type", "image", "--format", "{{.Size}}", IMAGE) or 0)
    said = run_in_image("version")
    print(f"test-image: {size // 2**20} MiB; as user 10001 it says: {said.split(chr(10))[0]}")
    return 0 if size <= LARGEST_BYTES else 1


def make_base(archive: Path) -> None:
    """A root file system of Debian's with Python, as an image."""
    say("making a base from Debian packages (half a minute)")
    include = f"--include={PACKAGES}"
    run("mmdebstrap", "--variant=minbase", include, "bookworm", str(archive))
    container = run("buildah", "from", "scratch").strip()
    run("buildah", "add", container, str(archive), "/")
    run("buildah", "commit", "--rm", container, BASE)


def run_in_image(*arguments: str) -> str:
    """What frazil prints in a container of the image, as the image's own user."""
    container = run("buildah", "from", IMAGE).strip()
    try:
        return run("buildah", "run", container, "--", "/opt/frazil/entrypoint.sh", *arguments)
    finally:
        run("buildah", "rm", container)


def run(*command: str) -> str:
    """The output of a step; what it said is shown when it fails."""
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        sys.exit(f"test-image: {command[0]} failed:\n{finished.stdout}{finished.stderr}")
    return finished.stdout


if __name__ == "__main__":
    sys.exit(main())
