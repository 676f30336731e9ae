"""What docs/reference/key-index.md describes is what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path

from frazil.codec.key_index.head import MANIFEST_BLOB_TYPE, write_head
from frazil.codec.key_index.manifest import encode_manifest
from frazil.codec.key_index.run import BLOB_TYPE as RUN_BLOB_TYPE
from frazil.codec.puffin import read_footer
from frazil.model.key_index import KeyHash
from frazil.model.schema.types import Primitive
from tests.support.codec.golden_keys import golden_keys
from tests.support.codec.key_hash import encode_key
from tests.support.lake.manifests import SAMPLE

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs/reference/key-index.md").read_text(encoding="utf-8")
VECTOR = re.compile(r"^\| (`.+`) \| (.+) \| `([0-9a-f]{16})` \| `([0-9a-f]{16})` \|$", re.MULTILINE)


def members(cell: str) -> tuple[str, ...]:
    return tuple("" if each == "(empty)" else each.strip("`") for each in re.split(", (?=`)", cell))


def test_the_hashes_on_the_page_are_golden_ones_of_every_kind() -> None:
    golden = {(tuple(map(str, key.types)), key.texts): (key.hi, key.lo) for key in golden_keys()}
    shown = VECTOR.findall(PAGE)
    for types, values, hi, lo in shown:
        assert golden[members(types), members(values)] == (int(hi, 16), int(lo, 16))
    kinds = {each.split("(")[0].split("[")[0] for types, *_ in shown for each in members(types)}
    assert kinds == {each.split("(")[0].split("[")[0] for types, _ in golden for each in types}


def test_the_encoding_on_the_page_is_that_of_its_example() -> None:
    encoded = encode_key([7, "seven"], [Primitive.LONG, Primitive.STRING])
    assert f"`{encoded.hex()}`" in PAGE


def test_the_manifest_on_the_page_is_what_is_written() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert json.loads(example) == json.loads(encode_manifest(SAMPLE))


def test_every_member_property_and_name_is_on_the_page() -> None:
    head = write_head(SAMPLE, b"run")
    footer = read_footer(head.data, file_size=len(head.data))
    properties = {*footer.properties, *(name for blob in footer.blobs for name in blob.properties)}
    document = json.loads(encode_manifest(SAMPLE))
    nested = [document["files"], document["deletes"], *document["placements"]]
    tables = [document["runs"][0]["parts"], document["runs"][0]["blobs"]]
    names = {*properties, *document, *(name for table in (*nested, *tables) for name in table)}
    names |= {f"key.{each}" for each in document["key"]} | {*KeyHash}
    names |= {f"runs[].{each}" for each in document["runs"][0]} | {
        MANIFEST_BLOB_TYPE,
        RUN_BLOB_TYPE,
    }
    # DecodedHistory by its parts, and a custom of Puffin's.
    names -= {"key", "created-by"}
    assert [each for each in sorted(names) if f"`{each}`" not in PAGE] == []
