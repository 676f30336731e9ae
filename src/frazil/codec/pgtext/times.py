"""Dates and timestamps as Postgres prints them in ISO style, in UTC.

The years 1 to 9999 are supported. Iceberg's days and microseconds reach further, and readers do
not: Spark promises no other years, Python has none, and engines disagree on how to show them.
"""

from __future__ import annotations

import pyarrow as pa

from frazil.codec.pgtext.grammar import Read, read_printed

# Postgres has no year 0: before 0001 comes 0001 BC.
_YEAR = r"(?:[1-9]\d{3}|0[1-9]\d\d|00[1-9]\d|000[1-9])"
_DAY = r"-\d\d-\d\d"
_CLOCK = r" \d\d:\d\d:\d\d(?:\.\d{1,6})?"
# A date's year has seven digits at most, a timestamp's six.
_LATER_YEAR = r"[1-9]\d{4,6}"
_INFINITE = "-?infinity"

_ZONE = r"\+00"
_UTC = pa.timestamp("us", tz="UTC")


def read_dates(text: pa.StringArray) -> Read:
    """Dates; infinities, BC and years of five digits are misfits."""
    return read_printed(
        text,
        lambda each: each.cast(pa.date32()),
        fits=f"{_YEAR}{_DAY}",
        printed=_outside(_DAY),
    )


def read_timestamps(text: pa.StringArray) -> Read:
    """Timestamps without a zone, in microseconds; misfits as for dates."""
    return read_printed(
        text,
        lambda each: each.cast(pa.timestamp("us")),
        fits=f"{_YEAR}{_DAY}{_CLOCK}",
        printed=_outside(f"{_DAY}{_CLOCK}"),
    )


def read_timestamps_as_utc(text: pa.StringArray) -> Read:
    """Timestamps without a zone, whose owner says that their clock shows UTC."""
    read = read_timestamps(text)
    return Read(read.values.view(_UTC), read.misfits)


def read_timestamptzs(text: pa.StringArray) -> Read:
    """Moments; misfits as for dates.

    Another zone than UTC is refused though it could be read: in that session, columns kept as text
    would change with the zone.
    """
    return read_printed(
        text,
        lambda each: each.cast(_UTC),
        fits=f"{_YEAR}{_DAY}{_CLOCK}{_ZONE}",
        printed=_outside(f"{_DAY}{_CLOCK}{_ZONE}"),
    )


def _outside(rest: str) -> str:
    """What Postgres prints for times that are not supported, where this follows the year."""
    return f"{_INFINITE}|{_LATER_YEAR}{rest}|{_YEAR}{rest} BC"
