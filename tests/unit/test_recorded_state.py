"""What a release wrote into the lake is read by every later one, and left alone by earlier ones.

``tests/golden/state-0.1.0.json`` is what that release wrote; it is never changed. A release that
writes something new adds a file of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from frazil.clients.iceberg.read.table_metadata import TableMetadata
from frazil.codec.marker_json import decode_marker
from frazil.errors import (
    ForeignChangeError,
    MarkerLostError,
    StorageError,
    UnsupportedSchemaChangeError,
)
from frazil.ingest.planning.column_numbers import NumberedField, decode_column_numbers
from frazil.ledger.rows import STATE_COLUMNS, state_from
from frazil.ledger.table_state import (
    IS_GONE,
    Copying,
    Gone,
    Paused,
    Removed,
    ResyncRequired,
    Streaming,
)
from frazil.merge.planning.column_mapping import RecordedColumns, RecordedField, decode_columns
from frazil.model.cause import Cause
from frazil.model.marker import MarkerRole, SnapshotRef
from frazil.model.recorded_version import NEWER_STEP, newer_version
from frazil.sources.postgres.tables.shape import ShapeColumn, decode_shape

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.fault("O10")

STATE: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[1] / "golden" / "state-0.1.0.json").read_text()
)


def state_with(marker: str) -> TableMetadata:
    return TableMetadata(
        uuid="u",
        format_version=3,
        location="file:///t",
        last_column_id=1,
        properties={MarkerRole.MERGE.property_name: marker},
        head=None,
    )


def test_markers_of_the_first_release_are_read() -> None:
    ingest, merge = decode_marker(STATE["ingest marker"]), decode_marker(STATE["merge marker"])
    assert (ingest.pipeline, ingest.source) == ("shop", "7301/shop/shop_frazil")
    assert (ingest.epoch, ingest.position, ingest.batch) == (2, "16/B374D848", "b1")
    assert ingest.snapshot == SnapshotRef(3051729675574597004, 7)
    assert merge.position == "3051729675574597004"
    assert merge.sequence == "0001/00000016b374d848/0000000000000002"
    assert merge.truncated == "0001/0000001600000000/0000000000000000"
    assert decode_marker(STATE["offsets marker"]).position == {"default/orders/1/0": 42}


def test_columns_of_the_first_release_are_read() -> None:
    assert decode_columns(STATE["mirror columns"], table="t") == RecordedColumns(
        fields=(
            RecordedField(changelog=1, mirror=1, attribute=1),
            RecordedField(changelog=4, mirror=2),
            RecordedField(changelog=5, mirror=3, dropped=True),
        ),
        key=(1,),
        deleted=9,
    )
    numbers = decode_column_numbers(STATE["changelog columns"], table="t")
    assert (numbers.key, numbers.highest) == ((1,), 3)
    assert numbers.columns == (
        NumberedField(number=1, field=1),
        NumberedField(number=3, field=2, previous=8),
        NumberedField(number=2, field=3, dropped=True),
    )
    shape = decode_shape(numbers.shape, table="t")
    assert shape.columns == (ShapeColumn(1, "id", 23, -1), ShapeColumn(3, "näme", 25, -1))
    assert (shape.key, shape.highest, shape.hidden) == ((1,), 3, (2,))


def row_of(*values: str | None) -> dict[str, str | None]:
    """A row of that release, which had fewer columns."""
    return dict.fromkeys(STATE_COLUMNS) | dict(zip(STATE_COLUMNS, values, strict=False))


def test_states_of_tables_of_the_first_release_are_read() -> None:
    assert [state_from(row_of(*each)).state for each in STATE["standings"]] == [
        Copying(),
        Copying(Cause("FRZ-LAK-02", "x", StorageError.remedy)),
        Streaming(),
        Paused("0/1", Cause("FRZ-SCH-01", "x", UnsupportedSchemaChangeError.remedy)),
        ResyncRequired("0/2", "why"),
        Removed("0/3"),
    ]


@pytest.mark.parametrize(
    ("name", "read", "error"),
    [
        (
            "merge marker",
            lambda text: state_with(text).marker(MarkerRole.MERGE, table="t"),
            MarkerLostError,
        ),
        (
            "mirror columns",
            lambda text: decode_columns(text, table="t"),
            UnsupportedSchemaChangeError,
        ),
        (
            "changelog columns",
            lambda text: decode_column_numbers(text, table="t"),
            UnsupportedSchemaChangeError,
        ),
    ],
)
def test_what_a_newer_release_wrote_is_refused_with_the_way_out(
    name: str,
    read: Callable[[str], object],
    error: type[MarkerLostError | UnsupportedSchemaChangeError],
) -> None:
    assert read(STATE[name]) is not None
    newer = json.dumps({**json.loads(STATE[name]), "version": 99})
    with pytest.raises(error) as caught:
        read(newer)
    # Never the repair of something that is broken: that would lose what the newer one wrote.
    assert caught.value.next_step == NEWER_STEP
    with pytest.raises(error) as caught:
        read("{}")
    assert caught.value.next_step != NEWER_STEP


def test_a_cause_of_the_first_release_is_taken_apart() -> None:
    text = "FRZ-SCH-01 public.a: the type changed. Next: frazil resync public.a"
    assert state_from(row_of("public.a", "{}", "held", "0/1", text)).state == Paused(
        "0/1", Cause("FRZ-SCH-01", "public.a: the type changed.", "frazil resync public.a")
    )


def test_a_table_that_the_first_release_found_gone_is_gone() -> None:
    text = f"{IS_GONE.code} {IS_GONE}"
    assert state_from(row_of("public.a", "{}", "held", "0/1", text)).state == Gone("0/1")


def test_a_state_that_only_a_newer_release_knows_is_refused() -> None:
    with pytest.raises(ForeignChangeError) as caught:
        state_from(row_of("public.a", "{}", "sleeping", None, None))
    assert caught.value.next_step == NEWER_STEP


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version":"9"}', '{"version":true}', "9"])
def test_what_names_no_newer_version_is_not_newer(text: str) -> None:
    assert newer_version(text, 1) is None
    assert newer_version('{"version":1}', 1) is None
    assert newer_version('{"version":2}', 1) == 2
