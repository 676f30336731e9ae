"""How old the state is that readers are sure to see."""

from __future__ import annotations

from frazil.pipeline.status.freshness import MOST_LOOKS, CaptureFreshness, MirrorFreshness


def test_nothing_is_known_before_the_source_was_asked_and_reached() -> None:
    capture = CaptureFreshness()
    assert (capture.through, capture.lag_bytes) == (None, None)
    capture.observe(1.0, 100)
    assert (capture.through, capture.lag_bytes) == (None, None)
    capture.reach(60)
    assert (capture.through, capture.lag_bytes) == (None, 40)


def test_what_is_captured_is_as_fresh_as_the_last_observation_that_it_has_reached() -> None:
    capture = CaptureFreshness()
    for second, newest in enumerate((100, 200, 200, 300)):
        capture.observe(float(second), newest)
    capture.reach(250)
    assert (capture.through, capture.lag_bytes) == (2.0, 50)
    capture.reach(300)
    assert (capture.through, capture.lag_bytes) == (3.0, 0)


def test_an_observation_of_an_idle_source_makes_everything_fresh_again() -> None:
    capture = CaptureFreshness()
    capture.reach(100)
    capture.observe(5.0, 100)
    assert capture.through == 5.0


def test_a_position_that_is_behind_takes_nothing_back() -> None:
    capture = CaptureFreshness()
    capture.observe(1.0, 100)
    capture.reach(100)
    capture.reach(10)
    assert (capture.through, capture.lag_bytes) == (1.0, 0)


def test_a_source_that_restarts_its_positions_is_fresh_only_when_it_was_reached_again() -> None:
    capture = CaptureFreshness()
    capture.observe(1.0, 1_000)
    capture.reach(1_000)
    capture.observe(2.0, 50)
    assert (capture.through, capture.lag_bytes) == (1.0, None)
    capture.reach(40)
    assert (capture.through, capture.lag_bytes) == (1.0, 10)
    capture.reach(50)
    assert (capture.through, capture.lag_bytes) == (2.0, 0)


def test_a_source_that_is_not_captured_for_hours_is_remembered_in_bounded_space() -> None:
    capture = CaptureFreshness()
    capture.reach(0)
    for second in range(3 * MOST_LOOKS):
        capture.observe(float(second), second + 1)
    capture.reach(2 * MOST_LOOKS)
    assert capture.through is not None
    # Thinned out twice at most by then: off by few seconds, and never too fresh.
    assert 0 <= 2 * MOST_LOOKS - 1 - capture.through <= 8


def test_a_mirror_that_lacks_nothing_is_as_fresh_as_the_changelogs() -> None:
    assert MirrorFreshness().through("users", 7.0) == 7.0


def test_a_mirror_is_as_fresh_as_it_was_before_the_first_change_that_it_lacks() -> None:
    mirrors = MirrorFreshness()
    mirrors.expect(["users"], 3.0)
    mirrors.expect(["users"], 5.0)
    assert mirrors.through("users", 9.0) == 3.0
    assert mirrors.through("orders", 9.0) == 9.0


def test_what_comes_while_a_merge_runs_is_lacking_afterwards() -> None:
    mirrors = MirrorFreshness()
    mirrors.expect(["users"], 3.0)
    mirrors.begin_merge("users")
    mirrors.expect(["users"], 5.0)
    assert mirrors.through("users", 9.0) == 3.0
    mirrors.end_merge("users")
    assert mirrors.through("users", 9.0) == 5.0
    mirrors.begin_merge("users")
    mirrors.end_merge("users")
    assert mirrors.through("users", 9.0) == 9.0


def test_a_merge_that_failed_leaves_the_mirror_as_old_as_it_was() -> None:
    mirrors = MirrorFreshness()
    mirrors.expect(["users"], 3.0)
    mirrors.begin_merge("users")
    mirrors.expect(["users"], 5.0)
    mirrors.fail_merge("users", 6.0)
    assert mirrors.through("users", 9.0) == 3.0


def test_a_merge_that_failed_with_nothing_to_merge_makes_the_mirror_older_from_then_on() -> None:
    mirrors = MirrorFreshness()
    mirrors.begin_merge("users")
    mirrors.fail_merge("users", 6.0)
    assert mirrors.through("users", 9.0) == 6.0


def test_every_partition_that_is_read_must_have_come_there() -> None:
    capture = CaptureFreshness()
    capture.observe(1.0, {"t/0": 5, "t/1": 5, "read elsewhere": 9})
    capture.reach({"t/0": 9, "t/1": 4})
    # The sum of them is not enough.
    assert (capture.through, capture.lag_bytes) == (None, None)
    capture.reach({"t/0": 9, "t/1": 5})
    assert (capture.through, capture.lag_bytes) == (1.0, None)


def test_a_partition_whose_lease_was_lost_is_waited_for_by_another_process() -> None:
    capture = CaptureFreshness()
    capture.reach({"t/0": 5, "t/1": 5})
    capture.observe(1.0, {"t/0": 6, "t/1": 6})
    assert (capture.through, capture.lag_bytes) == (None, None)
    capture.reach({"t/1": 6})
    assert (capture.through, capture.lag_bytes) == (1.0, None)


def test_partitions_that_begin_again_are_fresh_only_when_they_were_reached_again() -> None:
    capture = CaptureFreshness()
    capture.observe(1.0, {"t/0": 10, "t/1": 10})
    capture.reach({"t/0": 10, "t/1": 10})
    capture.observe(2.0, {"t/0": 1, "t/1": 10})
    assert capture.through == 1.0
    capture.reach({"t/0": 1, "t/1": 10})
    assert capture.through == 2.0


def test_observations_of_many_partitions_are_remembered_in_bounded_space() -> None:
    capture = CaptureFreshness()
    capture.reach({str(number): 0 for number in range(100)})
    for second in range(1000):
        capture.observe(float(second), {str(number): second + 1 for number in range(100)})
    capture.reach({str(number): 500 for number in range(100)})
    assert capture.through is not None
    assert 300 < capture.through < 500
