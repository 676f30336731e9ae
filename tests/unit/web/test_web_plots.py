"""Lines over time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from frazil.web.page_view import HEIGHT, WIDTH, draw_plot, rounded_up
from tests.support.status.statuses import NOW


@pytest.mark.parametrize(
    ("value", "top"),
    [(0, 1), (-2, 1), (0.013, 0.015), (1, 1), (1.01, 1.5), (2900, 3000), (7, 8), (9.9, 10)],
)
def test_a_scale_ends_at_a_number_that_reads_well(value: float, top: float) -> None:
    assert rounded_up(value) == pytest.approx(top)


def test_a_line_goes_from_edge_to_edge() -> None:
    plot = draw_plot([(NOW, 0.0), (NOW + timedelta(seconds=30), 5.0)])
    assert plot is not None
    assert plot.line == f"M0.0 {HEIGHT}.0L{WIDTH}.0 0.0"
    assert plot.area == f"M0.0 {HEIGHT}L0.0 {HEIGHT}.0L{WIDTH}.0 0.0L{WIDTH}.0 {HEIGHT}Z"
    assert (plot.top, plot.seconds) == (5.0, 30.0)


def test_a_gap_stays_open_and_a_value_alone_is_a_dot() -> None:
    values = [1.0, 1.0, None, 1.0, None]
    plot = draw_plot([(NOW + timedelta(seconds=n), value) for n, value in enumerate(values)])
    assert plot is not None
    assert plot.line == "M0.0 0.0L150.0 0.0 M450.0 0.0L450.0 0.0"


@pytest.mark.parametrize("values", [[], [1.0], [None, None, 1.0]])
def test_less_than_two_values_are_no_line(values: list[float | None]) -> None:
    assert draw_plot([(NOW + timedelta(seconds=n), v) for n, v in enumerate(values)]) is None


def test_two_values_of_one_moment_are_no_line() -> None:
    assert draw_plot([(NOW, 1.0), (NOW, 2.0)]) is None
