"""Sessions of callers who have set everything otherwise: nothing of a merge may notice."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, IllegalArgumentException

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

# What has more than two values; zones on both sides of UTC, with and without summer time.
HOSTILE: dict[str, Mapping[str, str]] = {
    "Tokyo": {
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
        "spark.sql.storeAssignmentPolicy": "LEGACY",
        "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
        "spark.sql.shuffle.partitions": "7",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
        "spark.sql.optimizer.excludedRules": "",
        "spark.wap.branch": "nowhere",
    },
    "New York": {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.timestampType": "TIMESTAMP_LTZ",
        "spark.sql.legacy.timeParserPolicy": "EXCEPTION",
        "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
        "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.execution.arrow.maxBytesPerBatch": "1000",
        "spark.sql.decimalOperations.allowPrecisionLoss": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
    },
}


def hostile_session(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session of the same context with every switch of Spark's SQL turned, and these settings."""
    session = spark.newSession()
    for key, value in spark.conf.getAll.items():
        if key.startswith("spark.sql.catalog."):
            session.conf.set(key, value)
    for key, value in turned_switches(spark).items():
        # Some are fixed for the context, and some depend on others.
        with suppress(AnalysisException, IllegalArgumentException):
            session.conf.set(key, value)
    for key, value in settings.items():
        session.conf.set(key, value)
    return session


def turned_switches(spark: SparkSession) -> dict[str, str]:
    """Every setting that Spark knows as true or false, as the other."""
    companion: Any = getattr(spark._jvm, "org.apache.spark.sql.internal.SQLConf$")
    entries = getattr(companion, "MODULE$").getConfigEntries().iterator()
    turned = {}
    while entries.hasNext():
        entry = entries.next()
        default = entry.defaultValueString()
        if default in {"true", "false"}:
            turned[entry.key()] = "false" if default == "true" else "true"
    return turned


@contextmanager
def driver_in(spark: SparkSession, zone: str) -> Iterator[None]:
    """The driver's two processes in another zone than UTC."""
    jvm: Any = spark._jvm
    zones = jvm.java.util.TimeZone
    before, java = os.environ.get("TZ"), zones.getDefault()
    os.environ["TZ"] = zone
    time.tzset()
    zones.setDefault(zones.getTimeZone(zone))
    try:
        yield
    finally:
        zones.setDefault(java)
        os.environ.pop("TZ")
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()
