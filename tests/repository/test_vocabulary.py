"""One name for one thing, and no words that only the authors understand."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SEARCHED = (
    "src",
    "tests",
    "tools",
    "benchmarks",
    "deploy",
    "examples",
    "docs",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
)
TEXTS = {".css", ".html", ".js", ".json", ".md", ".py", ".sql", ".txt", ".xml", ".yaml"}

# A word with the one to use instead. Words that are also ordinary English are left to reviewers.
RETIRED = {
    "anew": "again",
    "be it": "plain words",
    "booked": "recorded",
    "crew": "worker pool",
    "doorbell": "condition",
    "front door": "entry point",
    "gives way": "is fenced",
    "GiveUp": "RetriesExhausted",
    "GiveWay": "Fenced",
    "index_care": "index_operations",
    "last_words": "exception_hooks",
    "MergeGround": "MergeTarget",
    "needs a person": "action required",
    "seams": "hooks",
    "twin": "in-memory source, reference model",
    "walked": "iterated, BatchResult",
    "somebody": "the actor",
    "TableStanding": "TableState",
    "tell_apart": "explain_identity_change",
    "told": "reported, given",
    "wishes": "options",
}
PUBLIC_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)
# Names are words too, whatever joins them: ``needs_a_person``, ``_told``.
PATTERN = re.compile(
    "|".join(rf"(?<![a-z]){re.escape(word)}(?![a-z])" for word in RETIRED).replace(
        r"\ ", r"[\s_]+"
    ),
    re.IGNORECASE,
)


def searched_files() -> list[Path]:
    found = []
    for name in SEARCHED:
        path = ROOT / name
        found += [path] if path.is_file() else sorted(path.rglob("*"))
    return [
        file
        for file in found
        if file.suffix in TEXTS and file != Path(__file__) and "__pycache__" not in file.parts
    ]


def test_a_retired_word_is_found_across_lines_and_cases() -> None:
    assert PATTERN.search("It Needs a\n  person.")
    assert PATTERN.search("is TOLD")
    assert PATTERN.search("def what_needs_a_person(_told)")
    assert not PATTERN.search("a seamstress toldo")


@pytest.mark.parametrize("folder", SEARCHED)
def test_no_file_uses_a_retired_word(folder: str) -> None:
    offenders = {}
    for file in searched_files():
        name = str(file.relative_to(ROOT))
        if name != folder and not name.startswith(f"{folder}/"):
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        lines = [
            f"{text.count(chr(10), 0, match.start()) + 1}: {' '.join(match[0].split())}"
            for match in PATTERN.finditer(text)
        ]
        if lines:
            offenders[name] = lines
    report = "\n".join(f"{name}  {', '.join(lines)}" for name, lines in offenders.items())
    assert not offenders, f"retired words in {len(offenders)} files:\n{report}"


def test_no_public_class_name_is_defined_twice() -> None:
    defined = defaultdict(list)
    for file in sorted((ROOT / "src" / "frazil").rglob("*.py")):
        for name in PUBLIC_CLASS.findall(file.read_text(encoding="utf-8")):
            defined[name].append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in defined.items() if len(files) > 1} == {}
