"""Documents bent at random for as long as the budget lasts."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from frazil.config import load_config
from frazil.config.showing import show_document
from frazil.errors import ConfigError

pytestmark = pytest.mark.deep

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FRAGMENTS = (
    *(b"\0", b"\xff", b"- ", b": ", b"{", b"[", b"]", b"}", b"&a ", b"*a ", b"<<: ", b"? ", b"# "),
    *(b"|\n", b">-\n", b"\t", b"'", b'"', b"---\n", b"...\n", b"\n", b"!!python/object:x "),
    *(b"${X}", b"${X:-", b"$$", b"${file:/dev/zero}", b"\xe2\x80\xa8"),
    *(b"null", b"true", b"off", b"1e999", b"0x7f", b"-1", b"9" * 400),
)
# A document is at most a few kilobytes; one that takes this long would hang an operator.
SLOWEST_SECONDS = 5


def bent(document: bytes, chance: random.Random) -> bytes:
    """A few cuts, copies and insertions."""
    text = bytearray(document)
    for _ in range(chance.randint(1, 12)):
        at = chance.randint(0, len(text))
        until = min(len(text), at + chance.randint(0, 40))
        match chance.randrange(4):
            case 0:
                del text[at:until]
            case 1:
                text[at:at] = chance.choice(FRAGMENTS) * chance.choice([1, 1, 1, 50])
            case 2:
                text[at:at] = text[at:until]
            case _:
                text[at : at + 1] = bytes([chance.randrange(256)])
    return bytes(text)


def test_no_document_makes_loading_fail_in_any_other_way_than_by_naming_mistakes(
    tmp_path: Path,
) -> None:
    budget = float(os.environ.get("FRAZIL_DEEP_SECONDS", "60")) / 2
    seed = int(os.environ.get("FRAZIL_SEED", time.time_ns() % 2**32))
    print(f"FRAZIL_SEED={seed}")  # noqa: T201
    chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
    originals = [file.read_bytes() for file in sorted(EXAMPLES.glob("*.yaml"))]
    document = tmp_path / "bent.yaml"
    refused = loaded = 0
    ends = time.monotonic() + budget
    while time.monotonic() < ends:
        document.write_bytes(bent(chance.choice(originals), chance))
        started = time.thread_time()
        try:
            show_document(load_config(document, environ={"X": "1"}))
            loaded += 1
        except ConfigError:
            refused += 1
        assert time.thread_time() - started < SLOWEST_SECONDS, document.read_bytes()
    print(f"{refused} documents refused, {loaded} still right")  # noqa: T201
    # Both, or the bending was too strong or too weak to test anything.
    assert refused > budget
    assert loaded
