"""Documents written to hurt: refused with a sentence, in bounded time and memory."""

from __future__ import annotations

import os
import time
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frazil.config import load_config
from frazil.config.loading.substitution import MOST_SUBSTITUTED
from frazil.config.loading.text_file import LARGEST_DOCUMENT
from frazil.errors import ConfigError
from tests.support.sampling import examples, sampled

if TYPE_CHECKING:
    from pathlib import Path

# Three times what the slowest of them takes, as a multiple of what a plain loop takes on the same
# machine at the same moment: seconds of work differ by four with what else a processor does.
MOST_LOOPS = 208
_LOOP_STEPS = 2_000_000
# As much of the loop as is timed, twice for each document.
_TIMED_PART = 8
# For the largest document.
MOST_BYTES = 128 * 2**20

# Of the largest document; that one itself in deep runs.
PART = sampled([16, 1], ci=[16])


def hostile(part: int) -> dict[str, bytes]:
    """Documents of a size that is still read, but for the one that says otherwise."""
    k = (LARGEST_DOCUMENT // 1024 - 1) // part
    deep = 100_000 // part
    return {
        "deep lists": b"[" * deep,
        "deep mappings": b"{a: " * deep,
        "deep blocks": b"- " * deep,
        "deep keys": b"? " * deep,
        "one long text": b"a" * 1000 * k,
        "blank lines": b"\n" * 1000 * k,
        "a comment": b"#" * 1000 * k,
        "quotes": b"'" * 1000 * k,
        "escapes": b'"' + b"\\x41" * 250 * k + b'"',
        "an impossible escape": b'"\\UFFFFFFFF"',
        "an endless tag": b"!" * 1000 * k,
        "an endless tag of letters": b"a: !" + b"a" * 1000 * k,
        "an endless anchor": b"&" * 1000 * k,
        "short lines": b"a\n" * 500 * k,
        "many keys": b"".join(b"k%d: v\n" % i for i in range(deep // 5 * 2)),
        "many items": b"- a\n" * 250 * k,
        "many documents": b"---\n" * 250 * k,
        "many directives": b"%YAML 1.2\n" * 40 * k,
        "many empty lists": b"a: [" + b"[]," * 300 * k + b"]",
        "openings of references": b"a: " + b"${" * 400 * k,
        "an endless number": b"a: " + b"9" * 1000 * k,
        "an endless fraction": b"a: " + b"9" * 900 * k + b".0e99999",
        "line separators": "\u2028".encode() * 300 * k,
        "ten megabytes": b"a: b\n" * 2_000_000,
        "an alias bomb": b"a: &a [x, x]\n" + b"".join(
            b"b%d: &b%d [*a, *a, *a, *a, *a, *a, *a, *a]\n" % (i, i) for i in range(30)
        ),
        "an object": b"a: !!python/object/apply:os.system [echo]",
        "a local tag": b"a: !secret b",
    }  # fmt: skip


def loop_seconds() -> float:
    """What this machine takes for plain Python, now."""
    started = time.thread_time()
    sum(number * number for number in range(_LOOP_STEPS // _TIMED_PART))
    return (time.thread_time() - started) * _TIMED_PART


@pytest.mark.fault("G4", "G5")
@pytest.mark.parametrize("part", PART)
@pytest.mark.parametrize("name", hostile(16))
def test_a_hostile_document_is_refused_quickly_and_without_much_memory(
    name: str, part: int, tmp_path: Path
) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(hostile(part)[name])
    loop = loop_seconds()
    started = time.thread_time()
    with pytest.raises(ConfigError) as caught:
        load_config(path, environ={})
    worked = time.thread_time() - started
    assert worked < max(loop, loop_seconds()) * MOST_LOOPS / part
    assert caught.value.mistakes
    assert len(str(caught.value)) < 100_000


@pytest.mark.parametrize("part", sampled([32, 1], ci=[32]))
@pytest.mark.parametrize("name", ["deep lists", "many keys", "an alias bomb", "one long text"])
def test_a_hostile_document_needs_little_memory(name: str, part: int, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(hostile(part)[name])
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError):
            load_config(path, environ={})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST_BYTES / part


def test_a_pipe_without_a_writer_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="is not a regular file"):
        load_config(path, environ={})


def test_a_large_variable_named_often_does_not_make_a_large_document(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("pipeline: shop\nspark: {conf: {" + "".join(
        f"a{i}: '${{BIG}}', " for i in range(1_000)
    ) + "}}\n")  # fmt: skip
    with pytest.raises(ConfigError, match="variables and files make the document too large"):
        load_config(path, environ={"BIG": "x" * (MOST_SUBSTITUTED // 100)})


def test_a_key_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text('pipeline: shop\n"\\e[2Jgone": 1\n')
    with pytest.raises(ConfigError) as caught:
        load_config(path, environ={})
    assert all(line.isprintable() for line in caught.value.mistakes)


@pytest.mark.parametrize("value", ["[" * 5_000, "{a: *b}", "!!python/none", "a: b: c", "\x00"])
def test_a_hostile_override_is_refused_with_its_name(value: str, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("pipeline: shop\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path, environ={"FRAZIL__SPARK__MASTER": value})
    where = "environment FRAZIL__SPARK__MASTER: spark.master"
    assert any(line.startswith(where) for line in caught.value.mistakes)


BUDGET = settings(
    examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
KEYS = "pipeline catalog source tables kind mirror s3 mappings project_ref iceberg rest postgres"
MARKS = "off null 1 { } [ ] ${ ${A} $$ *a | > ' # ? << - \" \\ \t"
BREAKS = [": ", "- ", "\n", "\n  ", "&a ", "!!int ", "\u2028"]
TOKENS = st.sampled_from([*KEYS.split(), *MARKS.split(" "), *BREAKS])


@BUDGET
@given(data=st.binary(max_size=300))
def test_arbitrary_bytes_raise_nothing_but_a_configuration_error(
    data: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(data)
    with pytest.raises(ConfigError):
        load_config(path, environ={})


@BUDGET
@given(parts=st.lists(TOKENS, max_size=40), value=st.text(max_size=30))
def test_arbitrary_yaml_raises_nothing_but_a_configuration_error(
    parts: list[str], value: str, tmp_path: Path
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("".join(parts), encoding="utf-8")
    with pytest.raises(ConfigError):
        load_config(path, environ={"A": value, "FRAZIL__MERGE__INTERVAL": value})
