"""Values of Postgres's types at random, as text that it takes."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.support.postgres.printing import array_text, float_text, timestamp_text

if TYPE_CHECKING:
    from collections.abc import Mapping

# Postgres holds no NUL in text, and no half of a pair of surrogates.
_CHARACTERS = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
_TEXT = st.text(_CHARACTERS, max_size=12)
_INT4 = st.integers(-(2**31), 2**31 - 1)
_INT8 = st.integers(-(2**63), 2**63 - 1)
_MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999))  # noqa: DTZ001 - text without a zone
_STAMPS = _MOMENTS.map(timestamp_text)
_STAMPS_WITH_ZONE = st.tuples(
    _STAMPS.filter(lambda each: "0001-01-02" < each < "9999-12-30"),
    st.sampled_from(["", "+00", "-11:30", "+05:45", "+14"]),
).map("".join)
_SIGNS = st.sampled_from(["", "-"])
_DIGITS = st.text("0123456789", min_size=1, max_size=400)
_DIGITS_OR_NONE = st.text("0123456789", max_size=400)
_JSON = st.recursive(
    st.none() | st.booleans() | _INT8 | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(_TEXT, inside, max_size=3),
    max_leaves=4,
)
_WIDE_FLOATS = st.floats().map(float_text)
_NARROW_FLOATS = st.floats(width=32).map(lambda each: float_text(each, width=32))
_INTERVALS = st.tuples(
    st.integers(-100_000, 100_000), st.integers(-100_000, 100_000), st.integers(-(10**15), 10**15)
).map(lambda each: f"{each[0]} months {each[1]} days {each[2]} microseconds")
_TIMES = st.times().map(lambda each: each.isoformat())


def _decimals(digits: int, scale: int) -> st.SearchStrategy[str]:
    limit = 10**digits - 1
    return st.integers(-limit, limit).map(lambda each: f"{each}e-{scale}")


def _arrays(elements: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(elements | st.none(), max_size=5).map(array_text)


def _ranges(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[str]:
    bounds = st.tuples(numbers, numbers).map(sorted)
    # The highest number has none above it, which the range's own form would need.
    return st.builds(
        lambda pair, first, last: f"{first}{pair[0]},{pair[1]}{last}",
        bounds,
        st.sampled_from(["[", "("]),
        st.sampled_from([")"]),
    )


DRAWN: Mapping[str, st.SearchStrategy[str]] = {
    "bool": st.sampled_from(["true", "false"]),
    "int2": st.integers(-(2**15), 2**15 - 1).map(str),
    "int4": _INT4.map(str),
    "int8": _INT8.map(str),
    "oid": st.integers(0, 2**32 - 1).map(str),
    "float4": _NARROW_FLOATS,
    "float8": _WIDE_FLOATS,
    "text": _TEXT,
    "char(5)": st.text(_CHARACTERS, max_size=5),
    "numeric": st.tuples(_SIGNS, _DIGITS, st.just("."), _DIGITS_OR_NONE).map("".join),
    "numeric(10,2)": _decimals(10, 2),
    "numeric(38,0)": _decimals(38, 0),
    "numeric(38,38)": _decimals(38, 38),
    "numeric(1000,500)": st.tuples(_SIGNS, _DIGITS, st.just("."), _DIGITS).map("".join),
    "date": _MOMENTS.map(lambda each: each.date().isoformat()),
    "timestamp": _STAMPS,
    "timestamptz": _STAMPS_WITH_ZONE,
    "time": _TIMES,
    "timetz": st.tuples(_TIMES, st.sampled_from(["+00", "-15:59:59", "+05:45"])).map("".join),
    "interval": _INTERVALS,
    "uuid": st.uuids().map(str),
    "json": _JSON.map(lambda each: json.dumps(each, indent=1)),
    "jsonb": _JSON.map(json.dumps),
    "bytea": st.binary(max_size=40).map(lambda each: f"\\x{each.hex()}"),
    "money": _INT8.map(lambda each: format(Decimal(each).scaleb(-2), "f")),
    "inet": st.ip_addresses().map(str),
    "varbit": st.text("01", max_size=40),
    "point": st.tuples(_WIDE_FLOATS, _WIDE_FLOATS).map(lambda each: f"({each[0]},{each[1]})"),
    "int4range": _ranges(st.integers(-(2**31), 2**31 - 2)),
    "int4[]": _arrays(_INT4.map(str)),
    "text[]": _arrays(_TEXT),
    "float8[]": _arrays(_WIDE_FLOATS),
    "numeric(10,2)[]": _arrays(_decimals(10, 2)),
    "timestamptz[]": _arrays(_STAMPS_WITH_ZONE),
    "bytea[]": _arrays(st.binary(max_size=9).map(lambda each: f"\\x{each.hex()}")),
    "uuid[]": _arrays(st.uuids().map(str)),
    "json[]": _arrays(_JSON.map(json.dumps)),
}


def draw_values(count: int, *, number: int) -> dict[str, list[str]]:
    """Up to so many values of each type, no two alike; the same number gives the same ones."""
    return {name: _draw(each, count, number) for name, each in DRAWN.items()}


def _draw(values: st.SearchStrategy[str], count: int, number: int) -> list[str]:
    drawn: list[str] = []

    @seed(number)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(values)
    def draw(value: str) -> None:
        drawn.append(value)

    draw()
    return drawn
