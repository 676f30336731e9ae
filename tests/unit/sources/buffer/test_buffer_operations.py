"""What is decided about a buffer without asking it."""

from __future__ import annotations

from frazil.sources.buffer.upkeep.backpressure import BufferState, WaterMarks
from frazil.sources.buffer.upkeep.health import MOST_COUNTED, BufferObservation, describe_health

RUNNING, PAUSED = BufferState.RUNNING, BufferState.PAUSED


def test_between_the_marks_the_state_stays() -> None:
    marks = WaterMarks(high=8000, low=5000)
    for before in BufferState:
        assert marks.judge(8000, before) is PAUSED
        assert marks.judge(7999, before) is before
        assert marks.judge(5001, before) is before
        assert marks.judge(5000, before) is RUNNING


def test_an_idle_buffer_is_well_and_a_number_that_is_not_counted_out_says_so() -> None:
    idle = describe_health(
        BufferObservation(
            pending=0, oldest_seconds=None, letters=0, last_batch=3, acknowledged=3, state=RUNNING
        )
    )
    assert idle.newest == 3
    assert idle.facts is not None
    assert [each.is_well for each in idle.facts.lines] == [None, True, None, True]
    assert idle.facts.summary == "0 events pending, last batch 3"
    many = describe_health(
        BufferObservation(pending=MOST_COUNTED, oldest_seconds=-1.0, letters=None)
    )
    assert many.facts is not None
    assert many.newest == 1
    assert many.facts.details["pending"]["is_bounded"] is True
    assert many.facts.details["pending"]["oldest_seconds"] == 0.0
    assert many.facts.details["pending"]["is_full"] is None
    assert many.facts.summary.startswith("more than 100,000 events pending")
