"""Which objects are segments, and in which order they are read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.clients.object_store import StoredObject
from frazil.sources.kafscale.segments.discovery import SegmentListing, complete_segments
from frazil.sources.kafscale.segments.object_keys import (
    FileKind,
    SegmentName,
    TopicPartition,
    key_before,
    parse_key,
)
from tests.support.sampling import examples

ORDERS = TopicPartition("orders", 12)


def objects(*keys: str) -> list[StoredObject]:
    return [StoredObject(key, len(key)) for key in keys]


@pytest.mark.parametrize(
    ("key", "namespace", "expected"),
    [
        ("default/orders/12/segment-00000000000000000042.kfs", "default", (42, FileKind.SEGMENT)),
        ("default/orders/12/segment-00000000000000000042.index", "default", (42, FileKind.INDEX)),
        ("orders/12/segment-7.index", "", (7, FileKind.INDEX)),
        ("a/b/orders/12/segment-7.kfs", "/a/b/", (7, FileKind.SEGMENT)),
    ],
)
def test_keys_of_segments_say_what_they_hold(
    key: str, namespace: str, expected: tuple[int, FileKind]
) -> None:
    assert parse_key(key, namespace) == SegmentName(ORDERS, *expected)


@pytest.mark.parametrize(
    "key",
    [
        "__health/startup_probe_17",
        "default/orders/manifest.json",
        "default/orders/12/segment-00000000000000000042.kfst",
        "default/orders/12/segment-.kfs",
        "default/orders/12/segment--1.kfs",
        "default/orders/12/segment-1.kfs/x",
        "default/orders/x/segment-1.kfs",
        "default/orders/-1/segment-1.kfs",
        "default/orders/2147483648/segment-1.kfs",
        "default/orders/1/segment-9223372036854775808.kfs",
        "default/orders/١/segment-1.kfs",
        "default//1/segment-1.kfs",
        "other/orders/1/segment-1.kfs",
        "defaultorders/1/segment-1.kfs",
        "warehouse/db/orders/data/00000-0.parquet",
    ],
)
@pytest.mark.fault("U22")
def test_other_objects_are_ignored(key: str) -> None:
    assert parse_key(key, "default") is None


def test_a_segment_needs_both_files() -> None:
    found = complete_segments(
        objects(
            "n/orders/12/segment-00000000000000000003.index",
            "n/orders/12/segment-00000000000000000005.kfs",
            "n/orders/12/segment-00000000000000000007.index",
            "n/orders/12/segment-00000000000000000007.kfs",
        ),
        "n",
    )
    assert [(each.partition, each.base_offset) for each in found] == [(ORDERS, 7)]


@given(st.lists(st.integers(0, 2**63 - 1), unique=True, max_size=20), st.integers(0, 2**63 - 1))
@examples(100)
def test_segments_are_ordered_by_number_and_none_is_behind_the_key_to_start_after(
    bases: list[int], start: int
) -> None:
    keys = {
        base: [f"n/orders/12/segment-{base:020d}.{kind}" for kind in ("index", "kfs")]
        for base in bases
    }
    after = key_before("n", ORDERS, start)
    listed = [key for pair in keys.values() for key in pair if key > after]
    found = complete_segments(objects(*listed), "n")
    assert [each.base_offset for each in found] == sorted(each for each in bases if each >= start)


class Bucket:
    """Lists its keys as a store does."""

    def __init__(self, keys: list[str]) -> None:
        self.keys = sorted(keys)

    def list_after(self, prefix: str, after: str) -> list[StoredObject]:
        return objects(*[each for each in self.keys if each.startswith(prefix) and each > after])


@pytest.mark.parametrize("start", [0, 1, 7, 8, 10, 11])
def test_segments_whose_names_have_no_zeros_in_front_are_found_as_well(start: int) -> None:
    names = {0: "0", 7: "7", 8: f"{8:020d}", 10: "10", 11: f"{11:020d}"}
    bucket: Any = Bucket(
        [f"n/orders/12/segment-{each}.{kind}" for each in names.values() for kind in FileKind]
    )
    found = SegmentListing(bucket, "n").list_new(ORDERS, start).segments
    assert [each.base_offset for each in found] == [each for each in names if each >= start]


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,30}", fullmatch=True), st.integers(0, 2**31 - 1))
def test_partitions_are_written_and_read(topic: str, partition: int) -> None:
    named = TopicPartition(topic, partition)
    assert TopicPartition.parse(str(named)) == named
