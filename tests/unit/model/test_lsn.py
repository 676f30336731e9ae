"""Positions in the log are numbers; their text is for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import MalformedChangeError
from frazil.model.postgres.lsn import LARGEST_LSN, format_lsn, parse_lsn


@given(st.integers(0, LARGEST_LSN))
def test_a_position_survives_its_text(lsn: int) -> None:
    assert parse_lsn(format_lsn(lsn)) == lsn


@pytest.mark.parametrize(
    ("text", "lsn"),
    [
        ("0/0", 0),
        ("0/10", 16),
        ("16/B374D848", 0x16B374D848),
        ("ffffffff/FFFFFFFF", LARGEST_LSN),
        ("0/00000010", 16),
    ],
)
def test_the_texts_of_the_server_are_read(text: str, lsn: int) -> None:
    assert parse_lsn(text) == lsn


def test_numbers_compare_where_texts_would_not() -> None:
    assert parse_lsn("0/9") < parse_lsn("0/10")
    assert max(["0/9", "0/10"]) == "0/9"


@pytest.mark.parametrize("text", ["", "0", "/", "0/", "1/2/3", "0/123456789", "0/1\n", "-1/0"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(MalformedChangeError):
        parse_lsn(text)


@pytest.mark.parametrize("lsn", [-1, LARGEST_LSN + 1])
def test_what_is_no_position_has_no_text(lsn: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        format_lsn(lsn)
