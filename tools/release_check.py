"""Prove that a release can be made of this checkout; ``make release-check``.

Builds both archives and looks into them: the wheel has the package and nothing else, the source
archive builds the same wheel, and the changelog knows the version.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

from frazil.version import __version__
from tools.bootstrap import ROOT

# What programs need at run time besides modules; a wheel without them breaks only in production.
REQUIRED = (
    "frazil/py.typed",
    "frazil/clients/spark/java.lock",
    "frazil/clients/spark/log4j2.xml",
    "frazil/web/templates/",
    "frazil/web/assets/",
)
RELEASE = re.compile(r"\d+\.\d+\.\d+")


def main() -> int:
    """Exit 0 with one line, or 1 with a line per problem."""
    with tempfile.TemporaryDirectory(prefix="frazil-release-") as scratch:
        problems = problems_of(Path(scratch))
    for problem in problems:
        print(f"release-check: {problem}", file=sys.stderr)
    if problems:
        return 1
    print(f"release-check: frazil {__version__}: wheel, source archive and changelog are in order")
    return 0


def problems_of(scratch: Path) -> list[str]:
    """Everything that is wrong with the archives."""
    wheel, source = build_archives(scratch / "dist")
    return [
        *wheel_problems(wheel),
        *source_problems(wheel, source, scratch),
        *changelog_problems((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")),
    ]


def build_archives(folder: Path) -> tuple[Path, Path]:
    """The wheel and the source archive of this checkout."""
    _build(ROOT, folder)
    (wheel,) = folder.glob("*.whl")
    (source,) = folder.glob("*.tar.gz")
    return wheel, source


def wheel_problems(wheel: Path) -> list[str]:
    """What the wheel lacks, has too much, or says wrongly about itself."""
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        headers = HeaderParser().parsestr(archive.read(metadata).decode("utf-8"))
    information = metadata.rpartition("/")[0]
    problems = [
        f"the wheel lacks {required}"
        for required in REQUIRED
        if not any(name.startswith(required) for name in names)
    ]
    if not any(name.startswith(f"{information}/licenses/LICENSE") for name in names):
        problems.append("the wheel lacks its licence")
    problems += [
        f"the wheel has {name}, which is not of the package"
        for name in names
        if not name.startswith(("frazil/", f"{information}/"))
    ]
    if headers["Version"] != __version__:
        problems.append(f"the wheel says {headers['Version']} and the code {__version__}")
    return problems


def source_problems(wheel: Path, source: Path, scratch: Path) -> list[str]:
    """Whether the source archive alone makes the same wheel."""
    with tarfile.open(source) as archive:
        archive.extractall(scratch / "source", filter="data")
    (unpacked,) = (scratch / "source").iterdir()
    _build(unpacked, scratch / "again", "--target", "wheel")
    (again,) = (scratch / "again").glob("*.whl")
    with ZipFile(wheel) as first, ZipFile(again) as second:
        contents = [
            {entry.filename: entry.CRC for entry in archive.infolist()}
            for archive in (first, second)
        ]
    differing = {name for name, _ in contents[0].items() ^ contents[1].items()}
    return [f"the source archive builds another {name}" for name in sorted(differing)]


def changelog_problems(text: str) -> list[str]:
    """The newest heading must be what this version is about."""
    headings = re.findall(r"(?m)^## \[([^]]+)\]", text)
    if "Unreleased" not in headings[:1] and headings[:1] != [__version__]:
        return [f"CHANGELOG.md begins with neither Unreleased nor {__version__}"]
    return [] if RELEASE.match(__version__) else [f"{__version__} is not a version of SemVer"]


def _build(project: Path, folder: Path, *options: str) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder), *options]
    subprocess.run(command, cwd=project, check=True, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
