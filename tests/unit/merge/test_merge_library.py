"""``frazil.merge_table`` without a session: names and choices are checked first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

import frazil
from frazil.clients.iceberg.read.table_metadata import TableMetadata
from frazil.codec.marker_json import encode_marker
from frazil.errors import ConfigError, RuntimeMissingError
from frazil.merge.library import default_order
from frazil.merge.planning.settings import MergeSettings
from frazil.model.marker import Marker
from frazil.model.policy import Order
from frazil.model.table_name import TableName
from tests.support.merge.names import TablePair

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

TABLES = TablePair(changelog="lake.public.users_changelog", mirror="lake.public.users")


class Settings:
    """The part of a session that is used first."""

    def __init__(self, **values: str) -> None:
        self._values = values

    def get(self, key: str, default: str | None = None) -> str | None:
        return self._values.get(key, default)


def session(module: str = "pyspark.sql.session", **conf: str) -> SparkSession:
    """A module name and some settings."""
    kind = type("SparkSession", (), {"__module__": module, "conf": Settings(**conf)})
    return cast("SparkSession", kind())


def merge(**changes: Any) -> None:
    given: dict[str, Any] = {**TABLES, "keys": ["id"], **changes}
    frazil.merge_table(session(), **given)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"mirror": "users"}, r"mirror: 'users' is not catalog\.namespace\.table"),
        ({"changelog": "public.log"}, r"changelog: 'public\.log' is not catalog"),
        ({"mirror": "lake..users"}, "is empty"),
        ({"mirror": "pond.public.users"}, "in the catalog 'lake', the mirror in 'pond'"),
        ({"keys": []}, "keys: there are none"),
        ({"order": "latest"}, "order: 'latest' is none of append, per_key"),
        ({"deletes": "hard"}, "deletes: 'hard' is none of apply, ignore, soft"),
        ({"format_version": 1}, "format_version: 1 is not 3 or 2"),
        ({"max_rows": 0}, "max_rows: 0 is not"),
        ({}, "the Spark session has no catalog 'lake'"),
    ],
)
def test_an_invalid_argument_is_described(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as raised:
        merge(**changes)
    assert raised.value.next_step


def test_a_session_of_spark_connect_is_refused_with_what_to_do() -> None:
    remote = session("pyspark.sql.connect.session")
    with pytest.raises(RuntimeMissingError, match="Spark Connect") as raised:
        frazil.merge_table(remote, **TABLES, keys=["id"])
    assert "getOrCreate" in str(raised.value.next_step)


def test_a_catalog_that_is_not_icebergs_is_refused() -> None:
    other = session(**{"spark.sql.catalog.lake": "org.apache.spark.Something"})
    with pytest.raises(ConfigError, match="not one of Iceberg's"):
        frazil.merge_table(other, **TABLES, keys="id")


def changelog(properties: Mapping[str, str]) -> TableMetadata:
    return TableMetadata(
        uuid="u", format_version=2, location="l", last_column_id=1, properties=properties, head=None
    )


def settings(sequence: str = "cdc_sequence_number") -> MergeSettings:
    name = TableName("lake", ("public",), "users")
    return MergeSettings(changelog=name, mirror=name, key=("id",), sequence=sequence)


def test_only_what_frazil_wrote_from_one_stream_is_taken_to_be_in_order() -> None:
    one = Marker(pipeline="p", source="s", position="0/1", batch="b")
    many = Marker(pipeline="p", source="s", position={"orders/0": 7}, batch="b")
    ours = changelog({"frazil.ingest": encode_marker(one)})
    partitions = changelog({"frazil.ingest": encode_marker(many)})
    assert default_order(ours, settings()) is Order.APPEND
    assert default_order(ours, settings("lsn")) is Order.PER_KEY
    assert default_order(partitions, settings()) is Order.PER_KEY
    assert default_order(changelog({}), settings()) is Order.PER_KEY
