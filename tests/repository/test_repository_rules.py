"""What no linter checks: sizes, names, and what must never be committed."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONGEST_MODULE = 500
LONGEST_ROOT_CONFTEST = 100
MOST_MODULES = 15
DRAWERS = {"util", "utils", "helper", "helpers", "common", "misc", "base", "core", "manager"}

# Addresses that may be in a public repository: the loopback, placeholders, reserved names, the
# sites of licences and formats, and a public store in an example; no registry and no mirror.
HARMLESS_HOST = re.compile(
    r"127\.0\.0\.1|[^.]*|.*[{}].*|.*\.example(?:\.com)?|.*\.cluster\.local|kubernetes\.default\.svc"
    r"|(?:www|ant|iceberg)\.apache\.org|json-schema\.org|www\.w3\.org|github\.com"
    r"|s3\.us-east-1\.amazonaws\.com"
    # What makers of other engines say of them.
    r"|docs\.(?:aws\.amazon|snowflake|cloud\.google|databricks)\.com"
)
ADDRESS = re.compile(r"https?://([A-Za-z0-9._{}$%-]+)")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def committed_files() -> list[Path]:
    """Tracked files and those about to be, without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    files = (ROOT / name for name in listed.split("\0") if name)
    return [file for file in files if file.is_file()]


def python_files() -> list[Path]:
    return [file for file in committed_files() if file.suffix == ".py"]


def lines_in(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def test_there_are_files() -> None:
    assert ROOT / "src/frazil/errors.py" in python_files()


def test_no_module_is_longer_than_five_hundred_lines() -> None:
    sizes = {str(file.relative_to(ROOT)): lines_in(file) for file in python_files()}
    assert {name: size for name, size in sizes.items() if size > LONGEST_MODULE} == {}


def test_no_folder_has_more_modules_than_a_reader_keeps_apart() -> None:
    counts = Counter(
        str(file.parent.relative_to(ROOT))
        for file in python_files()
        if file.stem not in {"__init__", "__main__", "conftest"}
    )
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_the_root_conftest_stays_small() -> None:
    conftest = ROOT / "tests" / "conftest.py"
    assert lines_in(conftest) <= LONGEST_ROOT_CONFTEST


def test_no_module_or_folder_is_a_drawer_for_everything() -> None:
    drawers = []
    for file in python_files():
        path = file.relative_to(ROOT)
        parts = {*path.parts[:-1], path.stem, *path.stem.split("_")}
        if parts & DRAWERS:
            drawers.append(str(path))
    assert drawers == []


def test_no_package_is_empty() -> None:
    packages = [folder for folder in (ROOT / "src/frazil").iterdir() if folder.is_dir()]
    empty = [
        package.name
        for package in packages
        if package.name != "__pycache__"
        and not any(f for f in package.rglob("*.py") if lines_in(f) > 5)
    ]
    assert empty == []


def text_of(file: Path) -> str:
    return file.read_bytes().decode("utf-8", "replace")


def test_no_committed_file_names_a_path_of_this_machine() -> None:
    # Whichever machine this is. A checkout right below the root is left out: its name may be that
    # of a data folder in an example.
    checkouts = [str(ROOT)] if len(ROOT.parts) > 2 else []
    homes = [str(Path.home())] if len(Path.home().parts) > 1 else []
    named = "|".join(map(re.escape, [*checkouts, *homes]))
    machine = re.compile(rf"(?:{named}|/home/\w+|/Users/\w+)(?=/)")
    texts = {str(file.relative_to(ROOT)): text_of(file) for file in committed_files()}
    assert [name for name, text in texts.items() if machine.search(text)] == []


def test_every_address_is_a_public_one() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {host}"
        for file in committed_files()
        for host in ADDRESS.findall(text_of(file))
        if not HARMLESS_HOST.fullmatch(host)
    ]
    assert found == []


def test_every_link_of_a_document_leads_to_a_file_of_this_repository() -> None:
    documents = [file for file in committed_files() if file.suffix == ".md"]
    for document in documents:
        for link in LINK.findall(text_of(document)):
            target = (document.parent / link).resolve()
            assert target.exists(), f"{document.name}: {link}"
            assert target.is_relative_to(ROOT), f"{document.name}: {link}"


def test_the_lock_pins_every_package_by_hash_and_names_no_index() -> None:
    locks = [file for file in committed_files() if file.suffix == ".lock"]
    assert len(locks) > 4
    for lock in locks:
        text = lock.read_text(encoding="utf-8")
        entries = re.split(r"\n(?=\S)", text.strip())
        assert all("--hash=sha256:" in entry for entry in entries), lock.name
        assert not re.search(r"https?://|--index-url|--find-links", text), lock.name


def test_the_makefile_stays_within_eighteen_targets_each_with_help() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):", text, re.MULTILINE)
    helped = re.findall(r"^([a-z-]+):.*## \S", text, re.MULTILINE)
    assert len(targets) <= 18
    assert helped == targets


def test_every_test_is_in_a_folder_that_a_suite_runs() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    suites = dict(re.findall(r"^(FAST|FULL) := (.*)", makefile, re.MULTILINE))
    fast, full = (set(re.findall(r"tests/(\w+)", suites[name])) for name in ("FAST", "FULL"))
    files = list((ROOT / "tests").rglob("test_*.py"))
    # The image's own are run by the target that builds it.
    (image,) = re.findall(
        r"^test-image:.*\n(?:\t.*\n)*\t@\$\(BIN\)/pytest .*tests/(image)$", makefile, re.MULTILINE
    )
    assert {file.relative_to(ROOT / "tests").parts[0] for file in files} == {
        *fast,
        *full,
        "deep",
        image,
    }
    heavy = re.compile(r"mark\.(spark|services|web)\b")
    for file in files:
        if file.relative_to(ROOT / "tests").parts[0] in fast:
            assert not heavy.search(file.read_text(encoding="utf-8")), file.name


def test_contributing_is_short_enough_to_be_read() -> None:
    assert lines_in(ROOT / "CONTRIBUTING.md") <= 100
