"""An archive that lacks something is not released."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest

from frazil.version import __version__
from tools.release_check import REQUIRED, changelog_problems, wheel_problems

if TYPE_CHECKING:
    from pathlib import Path

INFORMATION = f"frazil-{__version__}.dist-info"
CONTENT = {
    **{(name if "." in name else f"{name}x.html"): "" for name in REQUIRED},
    f"{INFORMATION}/METADATA": f"Metadata-Version: 2.4\nName: frazil\nVersion: {__version__}\n",
    f"{INFORMATION}/licenses/LICENSE": "",
}


def write_wheel(file: Path, content: dict[str, str]) -> Path:
    with ZipFile(file, "w") as archive:
        for name, text in content.items():
            archive.writestr(name, text)
    return file


def test_a_whole_wheel_has_no_problem(tmp_path: Path) -> None:
    assert wheel_problems(write_wheel(tmp_path / "whole.whl", CONTENT)) == []


@pytest.mark.parametrize("lacking", [name for name in CONTENT if "METADATA" not in name])
def test_a_wheel_that_lacks_a_file_is_noticed(tmp_path: Path, lacking: str) -> None:
    content = {name: text for name, text in CONTENT.items() if name != lacking}
    assert len(wheel_problems(write_wheel(tmp_path / "lacking.whl", content))) == 1


def test_a_wheel_with_more_than_the_package_or_another_version_is_noticed(tmp_path: Path) -> None:
    more = write_wheel(tmp_path / "more.whl", CONTENT | {"tests/test_a.py": ""})
    assert wheel_problems(more) == ["the wheel has tests/test_a.py, which is not of the package"]
    metadata = {f"{INFORMATION}/METADATA": "Metadata-Version: 2.4\nVersion: 9.9.9\n"}
    other = write_wheel(tmp_path / "other.whl", CONTENT | metadata)
    assert wheel_problems(other) == [f"the wheel says 9.9.9 and the code {__version__}"]


@pytest.mark.parametrize(
    ("text", "count"),
    [("## [Unreleased]\n", 0), (f"## [{__version__}] - 2026\n", 0), ("## [0.0.1]\n", 1), ("", 1)],
)
def test_the_changelog_begins_with_this_version(text: str, count: int) -> None:
    assert len(changelog_problems(text)) == count
