"""Which of a caller's settings reach the session that our work runs in."""

from __future__ import annotations

import pytest

from frazil.clients.pinned_session import pinned_settings

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
