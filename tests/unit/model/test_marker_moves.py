from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.codec.malformed import MalformedFileError
from frazil.codec.marker_json import decode_marker, encode_marker
from frazil.model.marker import (
    Allowed,
    AlreadyDone,
    Lost,
    Marker,
    MarkerMove,
    MarkerRole,
    OtherSource,
    Overtaken,
    SnapshotRef,
    judge_move,
    moved_from,
)

TEXT = st.text(max_size=20)
MARKERS = st.builds(
    Marker,
    pipeline=TEXT,
    source=TEXT,
    position=st.one_of(TEXT, st.dictionaries(TEXT, st.integers(0, 2**63 - 1), max_size=5)),
    batch=TEXT,
    epoch=st.integers(0, 2**16),
    sequence=st.none() | TEXT,
    truncated=st.none() | TEXT,
    snapshot=st.none()
    | st.builds(SnapshotRef, st.integers(1, 2**63 - 1), st.integers(0, 2**63 - 1)),
)


def at(position: str | dict[str, int], batch: str = "b", **changes: object) -> Marker:
    fields: dict[str, object] = {"pipeline": "p", "source": "s", "position": position}
    return Marker(**{**fields, "batch": batch, **changes})  # type: ignore[arg-type]


def move(
    start: str | dict[str, int] | None,
    goal: str | dict[str, int],
    batch: str = "new",
    **more: object,
) -> MarkerMove:
    return MarkerMove(MarkerRole.INGEST, start, at(goal, batch, **more))


@given(MARKERS)
def test_a_marker_survives_its_json_and_its_pickle(marker: Marker) -> None:
    assert decode_marker(encode_marker(marker)) == marker
    assert pickle.loads(pickle.dumps(marker)) == marker
    assert "\n" not in encode_marker(marker)


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "{}", '{"version":2}', "null", '{"version":1}',
     '{"version":1,"pipeline":"p","source":"s","epoch":0,"position":7,"sequence":null,'
     '"truncated":null,"batch":"b"}'],
)  # fmt: skip
def test_what_is_not_a_marker_is_refused(text: str) -> None:
    with pytest.raises(MalformedFileError):
        decode_marker(text)


def test_the_first_move_needs_a_table_without_a_marker() -> None:
    assert judge_move(None, move(None, "1")) == Allowed(at("1", "new"))
    assert judge_move(at("1"), move(None, "2")) == Overtaken(at("1"))


def test_a_move_from_where_the_table_is_is_allowed() -> None:
    assert judge_move(at("1"), move("1", "2")) == Allowed(at("2", "new"))


def test_a_move_from_elsewhere_was_overtaken() -> None:
    assert judge_move(at("3"), move("1", "2")) == Overtaken(at("3"))


def test_a_move_that_is_in_the_table_already_is_done() -> None:
    assert judge_move(at("2", "new"), move("1", "2")) == AlreadyDone(at("2", "new"))


def test_the_same_position_reached_by_another_batch_is_another_processs_work() -> None:
    assert judge_move(at("2", "rival"), move("1", "2")) == Overtaken(at("2", "rival"))


def test_a_lost_marker_is_not_taken_for_a_new_table() -> None:
    assert judge_move(None, move("1", "2")) == Lost()


def test_positions_of_another_source_mean_nothing_here() -> None:
    found = at("1", source="another")
    assert judge_move(found, move("1", "2")) == OtherSource(found)


def test_a_resync_begins_a_new_epoch_and_ends_the_old_one() -> None:
    assert judge_move(at("9"), move("9", "1", epoch=1)) == Allowed(at("1", "new", epoch=1))
    found = at("1", epoch=1)
    assert judge_move(found, move("1", "2")) == Overtaken(found)


def test_two_workers_move_their_own_partitions_only() -> None:
    found = at({"t/0": 5, "t/1": 7}, "other worker")
    verdict = judge_move(found, move({"t/0": 5}, {"t/0": 9}))
    assert verdict == Allowed(at({"t/0": 9, "t/1": 7}, "new"))
    assert judge_move(found, move({"t/0": 4}, {"t/0": 9})) == Overtaken(found)


def test_a_new_partition_joins_and_one_that_another_process_began_does_not() -> None:
    found = at({"t/0": 5}, "before")
    assert judge_move(found, move({}, {"t/1": 3})) == Allowed(at({"t/0": 5, "t/1": 3}, "new"))
    assert judge_move(found, move({}, {"t/0": 3})) == Overtaken(found)


def test_a_worker_without_a_witness_keeps_that_of_another() -> None:
    found = at({"t/0": 5}, "other worker", witness="theirs")
    kept = judge_move(found, move({}, {"t/1": 9}))
    replaced = judge_move(found, move({}, {"t/1": 9}, witness="ours"))
    assert isinstance(kept, Allowed)
    assert isinstance(replaced, Allowed)
    assert (kept.marker.witness, replaced.marker.witness) == ("theirs", "ours")


def test_two_workers_begin_one_table() -> None:
    assert judge_move(None, move(None, {"t/0": 5})) == Allowed(at({"t/0": 5}, "new"))
    found = at({"t/0": 5}, "first")
    assert judge_move(found, move(None, {"t/1": 3})) == Allowed(at({"t/0": 5, "t/1": 3}, "new"))


def test_a_move_begins_where_its_own_partitions_are() -> None:
    assert moved_from({"t/0": 5, "t/1": 7}, {"t/0": 9, "t/2": 1}) == {"t/0": 5}
    assert moved_from("5", "9") == "5"
    assert moved_from(None, {"t/0": 9}) is None


def test_offsets_and_text_do_not_mix() -> None:
    assert judge_move(at("5"), move({}, {"t/0": 1})) == OtherSource(at("5"))


def test_positions_are_read_only() -> None:
    marker = at({"b": 2, "a": 1})
    assert list(marker.position) == ["a", "b"]
    with pytest.raises(TypeError):
        marker.position["a"] = 9  # type: ignore[index]


def test_the_same_batch_is_done_only_when_the_table_has_all_of_its_positions() -> None:
    found = at({"p0": 5, "p1": 7, "p2": 1}, "b")

    done = judge_move(found, move({"p0": 1, "p1": 2}, {"p0": 5, "p1": 7}, "b"))
    half = judge_move(found, move({"p0": 5, "p1": 2}, {"p0": 9, "p1": 7}, "b"))
    ahead = judge_move(found, move({"p0": 5}, {"p0": 9}, "b"))

    assert done == AlreadyDone(found)
    assert half == Overtaken(found)
    assert isinstance(ahead, Allowed)
    assert ahead.marker.position == {"p0": 9, "p1": 7, "p2": 1}


def test_the_same_batch_with_another_kind_of_position_is_not_done() -> None:
    found = at("7", "b")

    assert judge_move(found, move(None, "8", "b")) == Overtaken(found)
    assert judge_move(at({"7": 7}, "b"), move(None, "8", "b")) == Overtaken(at({"7": 7}, "b"))
    assert judge_move(found, move(None, {"7": 7}, "b")) == OtherSource(found)
    assert judge_move(found, move("7", "8", "b")) == Allowed(at("8", "b"))
