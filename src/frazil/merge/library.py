"""``frazil.merge_table``: a merge from a notebook or a Spark job.

::

    import frazil

    report = frazil.merge_table(
        spark,
        changelog="lake.public.users_changelog",
        mirror="lake.public.users",
        keys=["id"],
    )
    print(report.rows_read, report.counts)
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from frazil import errors
from frazil.changelog.layout import CdcColumns
from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import check_iceberg
from frazil.merge.merger import Merger
from frazil.merge.planning.changes import APPEND_STEP
from frazil.merge.planning.plan import OTHER_MIRROR_STEP
from frazil.merge.planning.settings import IndexSettings, MergeSettings
from frazil.model.marker import MarkerRole
from frazil.model.policy import Deletes, Order
from frazil.model.recorded_version import NEWER_STEP
from frazil.model.table_name import TableName, parse_table_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from frazil.clients.iceberg.read.table_metadata import TableMetadata
    from frazil.merge.report import MergeReport

SEQUENCE = "cdc_sequence_number"
OPERATION = "cdc_operation"
MAX_ROWS = 5_000_000

_CATALOG_CLASSES = "org.apache.iceberg.spark."
_FORMATS = (3, 2)

_REBUILD = "frazil.merge_table(..., rebuild=True)"
_REBUILT = (
    errors.ForeignChangeError,
    errors.MarkerLostError,
    errors.MissingImageError,
    errors.PositionLostError,
    errors.RolledBackError,
    errors.TableReplacedError,
)

_Choice = TypeVar("_Choice", bound=StrEnum)


def merge_table(
    spark: SparkSession,
    *,
    changelog: str,
    mirror: str,
    keys: Sequence[str],
    sequence: str = SEQUENCE,
    operation: str = OPERATION,
    order: Order | str | None = None,
    deletes: Deletes | str = Deletes.APPLY,
    partition_by: Sequence[str] = (),
    sort_by: Sequence[str] = (),
    format_version: int = 3,
    max_rows: int = MAX_ROWS,
    cache_dir: str | Path | None = None,
    pipeline: str = "frazil",
    rebuild: bool = False,
) -> MergeReport:
    """Merge everything new in the changelog into the mirror, which is created if it is missing.

    Calling it again merges what was appended since. Concurrent callers are safe: one of them gets
    FencedError or finds nothing to merge.

    Args:
        spark: A classic session of the caller's with the tables' Iceberg catalog; it stays open.
        changelog: ``catalog.namespace.table``, any append-only Iceberg table of changes.
        mirror: ``catalog.namespace.table`` in the same catalog; one row per key.
        keys: The columns that identify a row.
        sequence: The column that orders changes: text, an integer, a decimal or a timestamp.
        operation: The column that says what a change did; ``INSERT``, ``UPDATE``, ``DELETE``,
            ``TRUNCATE``, ``READ`` or their initials and Debezium's letters, in any case.
        order: ``append`` when later snapshots of the changelog never hold older changes; a change
            that does raises OutOfOrderError. ``per_key`` when they may: the sequence decides, the
            mirror keeps the sequence column, and rows with unchanged columns are refused. Without
            a choice it is ``append`` for a changelog that frazil itself wrote from one stream, and
            ``per_key`` for any other. When another is chosen later, the next merge converts the
            mirror.
        deletes: ``apply``, ``ignore``, or ``soft``, which keeps the row and sets ``cdc_deleted``.
        partition_by: Expressions such as ``day(created_at)``, for a mirror that is created.
        sort_by: Expressions by which new files are sorted, for a mirror that is created.
        format_version: 3 (deletion vectors) or 2 (position deletes), likewise.
        max_rows: About how many changes go into one commit.
        cache_dir: A local folder, on every machine that runs tasks, that the key index is cached
            in; by default one of this user below the machine's temporary folder.
        pipeline: The name that the mirror's marker carries.
        rebuild: Build the mirror again from everything that the changelog holds, whatever state
            the mirror is in: the repair for a mirror that was rolled back or damaged, and for a
            changelog whose rows were corrected. One commit replaces its rows, so readers see the
            old state or the new one. The changelog must hold the complete history, or begin with
            a copy of the table; what was removed from it is not in the mirror afterwards.

    Raises:
        ConfigError: An argument, or the session's catalog, cannot be used.
        RuntimeMissingError: The session is one of Spark Connect's, or has no Iceberg.
        FrazilError: The merge failed; ``frazil explain CODE`` says what to do.
    """
    settings = MergeSettings(
        changelog=_table_name("changelog", changelog),
        mirror=_table_name("mirror", mirror),
        key=_key(keys),
        sequence=sequence,
        operation=operation,
        pipeline=pipeline,
        order=Order.PER_KEY if order is None else _choice(Order, order, "order"),
        deletes=_choice(Deletes, deletes, "deletes"),
        partition_by=tuple(partition_by),
        sort_by=tuple(sort_by),
        format_version=_format_version(format_version),
        max_rows=_positive(max_rows),
        index=IndexSettings(cache_dir=_cache(cache_dir)),
    )
    lake = _open_lake(spark, settings)
    settings = _with_own_columns(settings)
    if order is None:
        state = lake.open(settings.changelog).load_state()
        settings = replace(settings, order=default_order(state, settings))
    try:
        return Merger(spark, lake, settings).merge(rebuild=rebuild)
    except _REBUILT as error:
        error.next_step = library_step(error.next_step)
        raise
    except errors.DuplicateKeyError as error:
        error.next_step = f"correct changes whose key and sequence repeat, then {_REBUILD}"
        raise
    except errors.NullKeyError as error:
        error.next_step = f"choose other keys, or correct the changes, then {_REBUILD}"
        raise


def library_step(step: str | None) -> str:
    """The next step for a notebook, which has no pipeline commands."""
    # A rebuild would be refused for the same reason.
    others = (NEWER_STEP, OTHER_MIRROR_STEP, APPEND_STEP)
    refused = [each for each in others if each in (step or "")]
    return refused[0] if refused else _REBUILD


def default_order(changelog: TableMetadata, settings: MergeSettings) -> Order:
    """``append`` for what frazil wrote from one stream into the usual columns, else ``per_key``.

    One position is one stream; a position per partition is many, without an order between them.
    """
    if settings.sequence != SEQUENCE:
        return Order.PER_KEY
    marker = changelog.marker(MarkerRole.INGEST, table=str(settings.changelog))
    is_ours = marker is not None and isinstance(marker.position, str)
    return Order.APPEND if is_ours else Order.PER_KEY


def _open_lake(spark: SparkSession, settings: MergeSettings) -> Lake:
    catalog, other = settings.mirror.catalog, settings.changelog.catalog
    if other != catalog:
        message = f"the changelog is in the catalog {other!r}, the mirror in {catalog!r}."
        raise errors.ConfigError(message, next_step="keep a mirror in the catalog of its changelog")
    # By module name: the class cannot be imported without Connect's own packages.
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise errors.RuntimeMissingError(
            "this is a session of Spark Connect, and commits go through the driver's JVM.",
            next_step="run the merge where the driver is, with SparkSession.builder.getOrCreate()",
        )
    _check_catalog(spark, catalog)
    check_iceberg(spark)
    return Lake(spark, catalog)


def _check_catalog(spark: SparkSession, catalog: str) -> None:
    key = f"spark.sql.catalog.{catalog}"
    found = spark.conf.get(key, None)
    wanted = f"{_CATALOG_CLASSES}SparkCatalog"
    if found is None:
        message = f"the Spark session has no catalog {catalog!r}."
        raise errors.ConfigError(
            message,
            next_step=f"build the session with {key}={wanted}, {key}.type and {key}.warehouse",
        )
    if not found.startswith(_CATALOG_CLASSES):
        message = f"the Spark session's catalog {catalog!r} is not one of Iceberg's."
        raise errors.ConfigError(message, next_step=f"build the session with {key}={wanted}")


def _table_name(argument: str, text: str) -> TableName:
    catalog, dot, rest = text.partition(".")
    if not dot or "." not in rest:
        message = f"{argument}: {text!r} is not catalog.namespace.table."
        raise errors.ConfigError(
            message, next_step="write it with the catalog's name, as Spark SQL does"
        )
    return parse_table_name(rest, catalog=catalog)


def _key(keys: Sequence[str]) -> tuple[str, ...]:
    key = (keys,) if isinstance(keys, str) else tuple(keys)
    if not key:
        raise errors.ConfigError(
            "keys: there are none.", next_step="name the columns of the primary key"
        )
    return key


def _choice(kind: type[_Choice], value: str, argument: str) -> _Choice:
    try:
        return kind(value)
    except ValueError:
        message = f"{argument}: {value!r} is none of {', '.join(kind)}."
        raise errors.ConfigError(message, next_step=f"choose one of them for {argument}") from None


def _format_version(number: int) -> int:
    if number not in _FORMATS:
        message = f"format_version: {number!r} is not 3 or 2."
        raise errors.ConfigError(message, next_step="leave it out to get 3")
    return number


def _positive(rows: int) -> int:
    if rows < 1:
        message = f"max_rows: {rows!r} is not a number of rows."
        raise errors.ConfigError(message, next_step="leave it out, or give a number above 0")
    return rows


def _cache(folder: str | Path | None) -> Path:
    if folder is not None:
        return Path(folder).expanduser().absolute()
    # A folder that every machine has, one per user.
    return Path(tempfile.gettempdir()) / f"frazil-{os.getuid()}" / "index"


def _with_own_columns(settings: MergeSettings) -> MergeSettings:
    """Derive our other columns from the prefix of the named two, if they share one."""
    prefix = settings.operation.removesuffix("operation")
    is_ours = prefix not in {"", settings.operation}
    if not is_ours or settings.sequence != f"{prefix}sequence_number":
        return settings
    ours = CdcColumns(prefix)
    return replace(
        settings,
        unchanged=ours.unchanged,
        previous_key=ours.previous_key,
        bookkeeping=(ours.timestamp, ours.lsn),
    )
