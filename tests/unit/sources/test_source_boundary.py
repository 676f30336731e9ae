"""Kinds of source are known through ``SourceKind`` only."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest

from frazil.config import load_config
from frazil.config.models.document import Source
from frazil.errors import ConfigError
from frazil.pipeline.configured_source import configured_source
from frazil.pipeline.resync import load_resync
from frazil.sources.registry import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).resolve().parents[3] / "src" / "frazil"
PACKAGES = ("changelog", "cli", "ingest", "ledger", "merge", "mirror", "pipeline", "verify", "web")
# They write, read or show something of one kind.
EXCEPT = ("cli/verbs/decode/segment.py", "cli/verbs/demo.py", "cli/verbs/init.py")
# A buffer is also bytes in memory.
KIND = re.compile(
    r"postgres|kafscale|\bbuffer_?(section|source|kind)|sources\.buffer", re.IGNORECASE
)
SECTIONS = {
    "buffer": "{kind: buffer, dsn: 'postgresql://h/d'}",
    "kafscale": "{kind: kafscale, bucket: b, offsets: {backend: none}, "
    "topics: [{topic: orders, table: prod.orders}]}",
    "postgres": "{kind: postgres, dsn: 'postgresql://h/d'}",
}


def words_of(code: str) -> Iterator[tuple[int, str]]:
    """Names, imports, and strings that are the name of a kind; documentation does not count."""
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        number, text = token.start[0], token.string
        if token.type == tokenize.NAME:
            yield number, text
        elif token.type == tokenize.STRING and text.strip("\"'") in KINDS:
            yield number, f"sources.{text}"
    for number, line in enumerate(code.splitlines(), start=1):
        if line.lstrip().startswith(("from frazil.", "import frazil.")):
            yield number, line


def test_no_module_outside_the_sources_names_a_kind() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {word}"
        for package in PACKAGES
        for path in sorted((SOURCE / package).rglob("*.py"))
        if path.relative_to(SOURCE).as_posix() not in EXCEPT
        for text in [path.read_text(encoding="utf-8")]
        # Most modules have no such letters at all.
        if KIND.search(text) or any(kind in text for kind in KINDS)
        for line, word in words_of(text)
        if KIND.search(word) or word in {f'sources."{kind}"' for kind in KINDS}
    ]
    assert not found


def test_a_kind_that_is_named_is_found() -> None:
    code = 'from frazil.sources.buffer.kind import x\nif kind == "postgres": KafscaleSection()\n'
    found = [word for _, word in words_of(code) if KIND.search(word) or '"' in word]
    assert found == ['sources."postgres"', "KafscaleSection", code.splitlines()[0]]


def test_every_kind_of_the_configuration_is_registered() -> None:
    sections = get_args(get_args(Source)[0]) if get_args(Source) else ()
    named = {get_args(each.model_fields["kind"].annotation)[0] for each in sections}
    assert named == KINDS.keys()


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_kind_is_made_from_its_section_and_connects_nothing(name: str, tmp_path: Path) -> None:
    document = tmp_path / "frazil.yaml"
    catalog = "catalog: {kind: sql, uri: 'sqlite:///c.db', warehouse: 'file:///wh'}"
    document.write_text(f"pipeline: shop\n{catalog}\nsource: {SECTIONS[name]}\n")
    kind = configured_source(load_config(document, environ={}).config)
    assert kind.name == name
    if name == "postgres":
        kind.validate()
        return
    for use in (kind.validate, kind.open, kind.claim, kind.watch, kind.chores, kind.records):
        use()
    assert kind.rows() is None
    if name != "buffer":
        with pytest.raises(ConfigError, match=f"of the kind {name}"):
            kind.open_teardown()


def test_a_source_that_keeps_nothing_refuses_a_resync(tmp_path: Path) -> None:
    document = tmp_path / "frazil.yaml"
    catalog = "catalog: {kind: sql, uri: 'sqlite:///c.db', warehouse: 'file:///wh'}"
    document.write_text(f"pipeline: shop\n{catalog}\nsource: {SECTIONS['buffer']}\n")
    no_lake: Any = None
    with pytest.raises(ConfigError, match="does not keep what was captured") as refused:
        load_resync(no_lake, load_config(document, environ={}).config, ["t"], everything=False)
    assert refused.value.next_step == "frazil position set"


def test_a_kind_is_imported_only_when_it_is_named() -> None:
    code = (
        "import sys, frazil.pipeline.configured_source\n"
        "print([each for each in sys.modules if each.startswith('frazil.sources.')])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "['frazil.sources.registry']"
