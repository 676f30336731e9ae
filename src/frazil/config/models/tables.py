"""Settings of changelogs and mirrors, for all tables and for single ones."""

from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from frazil.config.models.maintenance import MaintenanceOverrides
from frazil.config.models.naming import (
    ColumnPrefix,
    ColumnType,
    NamespaceTemplate,
    TableName,
    TableTemplate,
)
from frazil.config.models.section import Section, defaults
from frazil.config.models.values import (
    Count,
    Duration,
    LocalPath,
    Name,
    Size,
    Substituted,
    one_of,
    refuse,
)
from frazil.model.policy import Deletes, Evolution, OnDrop, OnUnrepresentable, Order
from frazil.model.schema.layout_expressions import parse_partition_term, parse_sort_term

# Iceberg files of this size are read in one task and still split well by row group.
TARGET_FILE_SIZE = 128 * 2**20
# pyarrow's default would be a million rows: too much to skip at once when few rows change.
ROW_GROUP_ROWS = 131_072
# The young part of the index is kept in memory: 65,536 entries are a few megabytes.
YOUNG_ENTRIES = 65_536
# Each run costs one lookup per key; eight keep a lookup under a millisecond.
MAX_RUNS = 8
# Half a billion keys at about 16 bytes.
CACHE_BYTES = 8 * 2**30
# Long enough for a late replay after a weekend.
TOMBSTONES_KEPT = timedelta(days=7)


class Compression(StrEnum):
    """Parquet codecs every engine reads."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    GZIP = "gzip"
    LZ4 = "lz4"
    NONE = "none"


def _format_version(value: object) -> object:
    number = {"2": 2, "3": 3}.get(value) if isinstance(value, Substituted) else value
    if isinstance(number, bool) or number not in {2, 3}:
        raise refuse("must be 3 or 2")
    return number


def _unrepresentable_text(value: object) -> object:
    # `null` without quotes is YAML's null, and means the text here.
    return OnUnrepresentable.NULL.value if value is None else value


def _expression(parse: Callable[[str], object], also: str = "") -> AfterValidator:
    def check(text: str) -> str:
        try:
            parse(text)
        except ValueError as error:
            sentence = f"must be {error}{also}"
            raise refuse(sentence) from None
        return text

    return AfterValidator(check)


PartitionExpression = Annotated[Name, _expression(parse_partition_term)]
SortExpression = Annotated[
    Name,
    _expression(parse_sort_term, "; asc or desc and nulls first or nulls last may follow"),
]
FormatVersion = Annotated[Literal[2, 3], BeforeValidator(_format_version)]
Unrepresentable = Annotated[
    OnUnrepresentable,
    one_of(OnUnrepresentable),
    BeforeValidator(_unrepresentable_text),
    WithJsonSchema({"enum": [*(choice.value for choice in OnUnrepresentable), None]}),
]
# Left out means the table's (or the mirror's) own; a written null means the text.
UnrepresentableOverride = Annotated[
    Annotated[OnUnrepresentable, one_of(OnUnrepresentable)] | None,
    BeforeValidator(_unrepresentable_text),
    WithJsonSchema({"enum": [*(choice.value for choice in OnUnrepresentable), None]}),
]


class Changelog(Section):
    """Append-only history tables."""

    namespace: NamespaceTemplate = "{schema}"
    """Template; may use {schema} and {pipeline}; cdc unless given when the source is buffer."""
    table: TableTemplate = Field(
        default="{table}_changelog",
        description="Template; may use {schema}, {table} and {pipeline}; {schema}_{table} unless "
        "given when the source is buffer.",
    )
    column_prefix: ColumnPrefix = "cdc_"
    """Prefix of our columns; _cdc_ unless given when the source is buffer."""
    partition_by: tuple[PartitionExpression, ...] = ()
    """Partition expressions."""


class Write(Section):
    """How data files are written."""

    target_file_size: Size = TARGET_FILE_SIZE
    """Files are closed at this size."""
    compression: Annotated[Compression, one_of(Compression)] = Compression.ZSTD
    """Parquet codec."""
    row_group_rows: Count = ROW_GROUP_ROWS
    """Rows per Parquet row group."""


class Index(Section):
    """The key index of a mirror."""

    young_entries: Count = YOUNG_ENTRIES
    """Entries kept in the youngest run before it is sealed."""
    max_runs: Count = MAX_RUNS
    """Runs before they are merged."""
    cache_dir: LocalPath = Path("cache")
    """Local directory of index pages."""
    cache_bytes: Size = CACHE_BYTES
    """Bound of that directory."""


class Mirror(Section):
    """Tables with one row per key, the newest state."""

    namespace: NamespaceTemplate = "{schema}"
    """Template; may use {schema} and {pipeline}."""
    table: TableTemplate = "{table}"
    """Template; may use {schema}, {table} and {pipeline}."""
    format_version: FormatVersion = 3
    """Iceberg format of new mirrors, 3 or 2."""
    partition_by: tuple[PartitionExpression, ...] = ()
    """Partition expressions, e.g. ["day(created_at)", "bucket(16, id)"]."""
    sort_by: tuple[SortExpression, ...] = ()
    """Sort expressions of new files."""
    deletes: Annotated[Deletes, one_of(Deletes)] = Deletes.APPLY
    """apply, ignore, or soft (keeps the row and sets cdc_deleted)."""
    on_drop: Annotated[OnDrop, one_of(OnDrop)] = OnDrop.KEEP
    """A column dropped at the source: keep or drop."""
    evolution: Annotated[Evolution, one_of(Evolution)] = Evolution.PERMISSIVE
    """permissive, or strict: any schema change stops the table."""
    on_unrepresentable: Unrepresentable = OnUnrepresentable.FAIL
    """Values Iceberg cannot hold: fail, string or null."""
    write: Write = defaults("How data files are written.")
    index: Index = defaults("The key index.")


class WriteOverrides(Section):
    """The keys of mirror.write that one table sets differently."""

    target_file_size: Size | None = None
    """Instead of mirror.write.target_file_size."""
    compression: Annotated[Compression, one_of(Compression)] | None = None
    """Instead of mirror.write.compression."""
    row_group_rows: Count | None = None
    """Instead of mirror.write.row_group_rows."""


class IndexOverrides(Section):
    """The keys of mirror.index that one table sets differently."""

    young_entries: Count | None = None
    """Instead of mirror.index.young_entries."""
    max_runs: Count | None = None
    """Instead of mirror.index.max_runs."""
    cache_dir: LocalPath | None = None
    """Instead of mirror.index.cache_dir."""
    cache_bytes: Size | None = None
    """Instead of mirror.index.cache_bytes."""


class ColumnSettings(Section):
    """What is declared about one column."""

    type: ColumnType | None = None
    """Iceberg type, instead of the mapped one."""
    on_unrepresentable: UnrepresentableOverride = Field(default=None, validate_default=False)
    """Instead of the table's."""


def _column_settings(value: object) -> object:
    return {"type": value} if isinstance(value, str) else value


Column = Annotated[
    ColumnSettings,
    BeforeValidator(_column_settings, json_schema_input_type=str | ColumnSettings),
]


class Table(Section):
    """One table: overrides of changelog and mirror, or a merge of its own without a source."""

    mirror: TableName
    """namespace.table of the mirror."""
    changelog: TableName | None = None
    """namespace.table of the changelog; required without a source."""
    source: Name | None = Field(
        default=None,
        description="schema.table at the source that becomes this mirror, where the templates "
        "would name it otherwise.",
    )
    key: tuple[Name, ...] = ()
    """Key columns; required without a source."""
    sequence: Name | None = None
    """Column that orders changes; default {column_prefix}sequence_number."""
    operation: Name | None = None
    """Column with the operation; default {column_prefix}operation."""
    order: Annotated[Order, one_of(Order)] | None = Field(
        default=None,
        description="append: rows arrive in source order (default); per_key: the sequence "
        "decides, whatever the arrival (default for the sources kafscale and buffer).",
    )
    tombstones: Duration | None = None
    """How long deletes are remembered; order per_key only, default 7d."""
    columns: dict[str, Column] = Field(
        default_factory=dict, description="Declared columns: a type, or a mapping."
    )
    column_prefix: ColumnPrefix | None = None
    """Instead of changelog.column_prefix."""
    changelog_partition_by: tuple[PartitionExpression, ...] | None = None
    """Instead of changelog.partition_by."""
    format_version: FormatVersion | None = None
    """Instead of mirror.format_version."""
    partition_by: tuple[PartitionExpression, ...] | None = None
    """Instead of mirror.partition_by."""
    sort_by: tuple[SortExpression, ...] | None = None
    """Instead of mirror.sort_by."""
    deletes: Annotated[Deletes, one_of(Deletes)] | None = None
    """Instead of mirror.deletes."""
    on_drop: Annotated[OnDrop, one_of(OnDrop)] | None = None
    """Instead of mirror.on_drop."""
    evolution: Annotated[Evolution, one_of(Evolution)] | None = None
    """Instead of mirror.evolution."""
    on_unrepresentable: UnrepresentableOverride = Field(default=None, validate_default=False)
    """Instead of mirror.on_unrepresentable."""
    write: WriteOverrides = defaults("Keys of mirror.write.")
    index: IndexOverrides = defaults("Keys of mirror.index.")
    maintenance: MaintenanceOverrides = defaults("Keys of maintenance.")
