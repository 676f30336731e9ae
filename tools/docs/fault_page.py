"""The faults that tests prove: collected from the marks on the tests, never written by hand."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = ROOT / "tests" / "faults.toml"

Catalogue = dict[str, dict[str, tuple[str, str]]]


def load_catalogue() -> Catalogue:
    """Chapter, fault, and what happens then."""
    chapters = tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))
    return {
        chapter: {fault: (texts[0], texts[1]) for fault, texts in faults.items()}
        for chapter, faults in chapters.items()
    }


def collect_marks(folder: Path = ROOT / "tests") -> dict[str, list[str]]:
    """Every fault with the tests that name it, as ``path::test``."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.fault(" not in text:
            continue
        module = ast.parse(text)
        of_module = [fault for mark in _module_marks(module) for fault in _faults(mark)]
        name = path.relative_to(folder.parent).as_posix()
        for test in _tests(module.body):
            own = [fault for mark in test.decorator_list for fault in _faults(mark)]
            for fault in dict.fromkeys([*own, *of_module]):
                found[fault].append(f"{name}::{test.name}")
    return dict(found)


def faults_page() -> str:
    """The page: one table a chapter."""
    return render(load_catalogue(), collect_marks())


def render(catalogue: Catalogue, marks: Mapping[str, list[str]]) -> str:
    """Every fault of the catalogue with its tests; one without a test says so."""
    lines = [
        "# Faults",
        "",
        "What can happen, what frazil does then, and the tests that prove it. The list is made of "
        'the marks on the tests (`@pytest.mark.fault("K3")`); `make test` runs all of them but '
        "those with the mark `deep`, which `make test-deep` runs.",
        "",
    ]
    for chapter, faults in catalogue.items():
        lines += [
            f"## {chapter}",
            "",
            "| | fault | what happens | proven by |",
            "|---|---|---|---|",
        ]
        for fault, (what, outcome) in faults.items():
            proof = "<br>".join(f"`{test}`" for test in _shortened(marks.get(fault, [])))
            lines.append(f"| {fault} | {what} | {outcome} | {proof or '**no test yet**'} |")
        lines.append("")
    return "\n".join(lines)


def _shortened(tests: list[str]) -> list[str]:
    """A test by its name and file; a file all of whose tests prove a fault would fill the page."""
    by_file: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        path, _, name = test.partition("::")
        by_file[path].append(name)
    several = 3
    short = []
    for path, names in by_file.items():
        if len(names) > several:
            short.append(f"{path} ({len(names)} tests)")
        else:
            short += [f"{path}::{name}" for name in names]
    return short


def _tests(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            if statement.name.startswith("test_"):
                yield statement
        elif isinstance(statement, ast.ClassDef):
            yield from _tests(statement.body)


def _module_marks(module: ast.Module) -> Iterator[ast.expr]:
    for statement in module.body:
        if isinstance(statement, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark"
            for target in statement.targets
        ):
            value = statement.value
            yield from value.elts if isinstance(value, ast.List | ast.Tuple) else [value]


def _faults(mark: ast.expr) -> list[str]:
    """The faults that ``pytest.mark.fault(...)`` names; nothing for any other decorator."""
    if not isinstance(mark, ast.Call) or not isinstance(mark.func, ast.Attribute):
        return []
    if mark.func.attr != "fault":
        return []
    return [str(each.value) for each in mark.args if isinstance(each, ast.Constant)]
