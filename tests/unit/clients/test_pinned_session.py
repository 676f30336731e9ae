"""Which of a caller's settings reach the session that our work runs in."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from pyspark.errors import AnalysisException

from frazil.clients.spark.pinned_session import pinned_session, pinned_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.fault("N27")

KEPT = {
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.uri": "jdbc:sqlite:x",
    "spark.sql.shuffle.partitions": "7",
    "spark.sql.redaction.string.regex": "secret",
    "spark.sql.iceberg.vectorization.enabled": "false",
    "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1",
    "fs.s3a.access.key": "k",
    "spark.executor.memory": "1g",
}
DROPPED = {
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.optimizer.excludedRules": "x",
    "spark.sql.some.setting.of.tomorrow": "true",
    "spark.wap.branch": "audit",
    "spark.wap.id": "1",
}


def test_catalogs_credentials_and_sizes_are_the_callers_and_the_rest_is_not() -> None:
    found = pinned_settings({**KEPT, **DROPPED, "spark.sql.session.timeZone": "Asia/Tokyo"})
    pinned = found.keys() - KEPT.keys()
    assert {key: found[key] for key in KEPT} == KEPT
    assert not found.keys() & DROPPED.keys()
    assert {key: found[key] for key in pinned} == {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.timestampType": "TIMESTAMP_LTZ",
        "spark.sql.caseSensitive": "true",
    }


class _JvmSettings(dict[str, str]):
    """The settings as the JVM gives them: a map that compares itself, and a session of its own."""

    def conf(self) -> _JvmSettings:
        return self

    def getAll(self) -> _JvmSettings:  # noqa: N802 - Spark's name
        return _JvmSettings(self)

    def equals(self, other: _JvmSettings) -> bool:
        return self == other


class _Session:
    """As much of a session as settings need, without a JVM; it refuses to modify some of them."""

    def __init__(self, settings: dict[str, str], fixed: frozenset[str]) -> None:
        self.getAll = self._jsparkSession = _JvmSettings(settings)
        self._fixed = fixed

    @property
    def conf(self) -> _Session:
        return self

    def newSession(self) -> _Session:  # noqa: N802 - Spark's name
        return _Session({}, self._fixed)

    def set(self, key: str, value: str) -> None:
        if key in self._fixed:
            message = f"[CANNOT_MODIFY_CONFIG] {key}"
            raise AnalysisException(message)
        self.getAll[key] = value

    def unset(self, key: str) -> None:
        del self.getAll[key]


def _pinned(theirs: dict[str, str], *fixed: str) -> dict[str, str]:
    session = _Session(theirs, frozenset(fixed))
    return cast("_Session", pinned_session(cast("SparkSession", session))).getAll


def test_a_setting_of_the_context_in_the_callers_session_is_left_out() -> None:
    found = _pinned(dict(KEPT), "spark.executor.memory")
    assert {**found, "spark.executor.memory": "1g"} == pinned_settings(KEPT)


def test_a_setting_that_changes_later_is_followed() -> None:
    session = _Session(dict(KEPT), frozenset())
    child = pinned_session(cast("SparkSession", session))
    session.set("spark.sql.shuffle.partitions", "9")
    assert pinned_session(cast("SparkSession", session)) is child
    assert cast("_Session", child).getAll == pinned_settings(session.getAll)


def test_a_setting_that_must_have_its_value_and_cannot_get_it_is_an_error() -> None:
    with pytest.raises(AnalysisException):
        _pinned({}, "spark.sql.ansi.enabled")
