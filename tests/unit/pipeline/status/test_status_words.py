"""Quantities and sentences as people read them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from frazil.model import humanize
from frazil.pipeline.status import wording
from tests.support.status.statuses import NOW, SCENARIOS, running, stopped


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (-3, "0 s"),
        (0, "0 s"),
        (0.0421, "42 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (4.23, "4.2 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (86_400 * 3 + 4 * 3600, "3 d 4 h"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float | None, text: str) -> None:
    assert humanize.duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (10_239, "10 KiB"),
        (1_048_575, "1.0 MiB"),
        (356_515_840, "340 MiB"),
        (2**80, "1048576 EiB"),
    ],
)
def test_a_size_is_in_the_unit_that_fits(count: int | None, text: str) -> None:
    assert humanize.size(count) == text


def test_rates_and_counts() -> None:
    assert [humanize.rate(each) for each in (0, 0.44, 9.97, 1204.4)] == [
        "0/s",
        "0.4/s",
        "10/s",
        "1,204/s",
    ]
    assert humanize.counted(1, "entry", "entries") == "1 entry"
    assert humanize.counted(12_000, "table") == "12,000 tables"


def test_moments_are_shown_by_their_distance() -> None:
    assert humanize.ago(NOW - timedelta(seconds=4.4), NOW) == "4 s ago"
    assert humanize.ago(NOW + timedelta(seconds=4.4), NOW) == "just now"
    assert humanize.until(NOW + timedelta(seconds=12.4), NOW) == "in 12 s"
    assert humanize.until(NOW - timedelta(seconds=1), NOW) == "now"
    assert humanize.elapsed(NOW - timedelta(seconds=3), NOW) == "3 s"
    assert humanize.clock_time(NOW, NOW) == "09:26:53"
    assert humanize.clock_time(NOW - timedelta(days=2), NOW) == "12 Mar 09:26"


@pytest.mark.parametrize(
    ("name", "headline"),
    [
        ("starting", "Starting"),
        ("copying", "Copying 2 of 3 tables"),
        ("running", "Following 5 tables"),
        ("stopped", "1 of 6 tables needs you"),
        ("unreachable", "The source cannot be read now"),
        ("source stopped", "Nothing is captured until you act"),
        ("merge only", "Merging 3 tables"),
    ],
)
def test_one_sentence_says_how_the_pipeline_is(name: str, headline: str) -> None:
    assert wording.headline(SCENARIOS[name]()) == headline


def test_the_sentence_of_rarer_conditions() -> None:
    assert wording.headline(replace(running(), tables=())) == "No tables yet"
    assert wording.headline(replace(running(), is_live=False)) == "Not running"
    tried = replace(stopped(), tables=stopped().tables[2:])
    assert wording.headline(tried) == "1 of 4 tables will be tried again"
    both = replace(stopped(), tables=(stopped().tables[1], stopped().tables[1]))
    assert wording.headline(both) == "2 of 2 tables need you"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("starting", None),
        ("running", "Readers see everything up to 3.4 s ago."),
        (
            "copying",
            "Readers of the other table see everything up to 3.1 s ago. "
            "2 tables are in their first load, without readers.",
        ),
        (
            "stopped",
            "Readers of the other 5 tables see everything up to 3.4 s ago. "
            "Readers of the one that is stopped are further behind.",
        ),
        ("merge only", "Readers see what the changelogs held 3.4 s ago."),
    ],
)
def test_what_readers_see_is_described_for_existing_tables(name: str, text: str | None) -> None:
    assert wording.freshness(SCENARIOS[name]()) == text


def test_a_table_in_its_first_load_says_so_with_its_share() -> None:
    read, waiting, followed = SCENARIOS["copying"]().tables
    assert [wording.lag(each) for each in (read, waiting, followed)] == [
        "first load 42%",
        "first load",
        "3.1 s",
    ]
    assert [wording.rows(each) for each in (read, followed)] == ["0", "18,204"]
