"""Every fault of the catalogue has a test, and every mark names a fault of the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.docs.fault_page import collect_marks, load_catalogue, render

if TYPE_CHECKING:
    from pathlib import Path


def test_every_mark_names_a_fault_and_every_fault_has_a_test() -> None:
    known = {fault for faults in load_catalogue().values() for fault in faults}

    assert set(collect_marks()) == known


def test_marks_of_tests_classes_and_modules_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_some.py").write_text(
        "import pytest\n"
        'pytestmark = [pytest.mark.other, pytest.mark.fault("A1")]\n'
        '@pytest.mark.parametrize("x", [1])\n'
        '@pytest.mark.fault("B2", "B3")\n'
        "def test_one(x): ...\n"
        "class TestMany:\n"
        "    def test_two(self): ...\n"
        '@pytest.mark.fault("C4")\n'
        "def not_a_test(): ...\n"
    )

    assert collect_marks(folder) == {
        "A1": ["tests/test_some.py::test_one", "tests/test_some.py::test_two"],
        "B2": ["tests/test_some.py::test_one"],
        "B3": ["tests/test_some.py::test_one"],
    }


def test_a_fault_without_a_test_says_so() -> None:
    page = render(
        {"Chapter": {"Z1": ("what", "then"), "Z2": ("more", "so")}}, {"Z2": ["a.py::test"]}
    )

    assert "| Z1 | what | then | **no test yet** |" in page
    assert "| Z2 | more | so | `a.py::test` |" in page
