"""A child of the caller's session whose settings cannot change what a value means.

A notebook sets its zone, ANSI mode, timestamp type, legacy flags and many more, at any time and
for reasons of its own. Reads and jobs of ours run in a child of that session: it shares the
context, its executors and its cached tables, and has settings, temporary views and catalog objects
of its own. The caller's session is never written to, so whatever runs in it at the same time is
not disturbed.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from pyspark.errors import AnalysisException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

# Spark's defaults would do, but those of zone and ANSI mode come from the machine.
_PINNED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # Columns are always named as they are written; two may differ in case only.
    "spark.sql.caseSensitive": "true",
}
# Of Spark's SQL settings, those that decide where tables are, how much runs at a time, and what is
# masked. Every other one stays at Spark's default, also one that a later version brings.
_KEPT = (
    "spark.sql.catalog.",
    "spark.sql.iceberg.",
    "spark.sql.redaction.",
    "spark.sql.shuffle.partitions",
    "spark.sql.adaptive.enabled",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.broadcastTimeout",
    "spark.sql.maxMetadataStringLength",
)
# A branch that Iceberg would read instead of the table.
_DROPPED = ("spark.sql.", "spark.wap.")


@dataclass(frozen=True, slots=True)
class _Child:
    """A session of ours, and the caller's settings that it was made to follow."""

    session: SparkSession
    follows: JavaObject


_lock = Lock()
_children: WeakKeyDictionary[SparkSession, _Child] = WeakKeyDictionary()
_pinned: WeakSet[SparkSession] = WeakSet()


def pinned_session(session: SparkSession) -> SparkSession:
    """The child of this session that our work runs in; the same one at every call.

    Catalogs, credentials and sizes are the caller's as they are at this call.
    """
    with _lock:
        if session in _pinned:
            return session
        # An immutable map in the JVM: comparing it there is one question, reading it hundreds.
        settings = session._jsparkSession.conf().getAll()  # noqa: SLF001
        child = _children.get(session)
        if child is not None and child.follows.equals(settings):
            return child.session
        pinned = session.newSession() if child is None else child.session
        _follow(pinned, pinned_settings(session.conf.getAll))
        _children[session] = _Child(pinned, follows=settings)
        _pinned.add(pinned)
    return pinned


def pinned_settings(theirs: Mapping[str, str]) -> dict[str, str]:
    """What the child is set to when the caller's session has these settings."""
    kept = {
        key: value
        for key, value in theirs.items()
        if key.startswith(_KEPT) or not key.startswith(_DROPPED)
    }
    return kept | _PINNED


def _follow(child: SparkSession, wanted: Mapping[str, str]) -> None:
    found = child.conf.getAll
    for key in found.keys() - wanted.keys():
        # What is fixed for the context cannot be unset, and is the same in both.
        with suppress(AnalysisException):
            child.conf.unset(key)
    for key, value in wanted.items():
        if found.get(key) == value:
            continue
        # A builder of the caller's may have put settings of the context into the session: those
        # have no effect there, and cannot be set.
        with nullcontext() if key in _PINNED else suppress(AnalysisException):
            child.conf.set(key, value)
