"""Windows of the day in which upkeep runs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from frazil.model.time_window import parse_window, seconds_until_open


def moment(hour: int, minute: int = 0, day: int = 15, month: int = 1) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=UTC)


def test_a_window_may_go_past_midnight_and_its_end_is_outside() -> None:
    night = parse_window("22:00-06:00")
    assert [night.contains(moment(hour)) for hour in (21, 22, 0, 5, 6)] == [
        False, True, True, True, False,
    ]  # fmt: skip
    noon = parse_window("11:30-12:00")
    assert noon.contains(moment(11, 30))
    assert not noon.contains(moment(12))


def test_a_window_is_in_its_zone_in_summer_and_in_winter() -> None:
    berlin = parse_window("22:00-06:00 Europe/Berlin")
    assert berlin.contains(moment(21))
    assert not berlin.contains(moment(20, month=1))
    assert berlin.contains(moment(20, month=7))


def test_the_wait_ends_when_the_first_window_opens() -> None:
    windows = [parse_window("22:00-06:00"), parse_window("12:00-13:00")]
    assert seconds_until_open(windows, moment(11)) == 3600
    assert seconds_until_open(windows, moment(13)) == 9 * 3600
    assert seconds_until_open(windows, moment(23)) == 0
    assert seconds_until_open([], moment(11)) == 0


@pytest.mark.parametrize(
    "text", ["", "22-06", "22:00-24:00", "22:60-06:00", "22:00-22:00", "22:00-06:00 Mars/Base"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a window such as"):
        parse_window(text)
