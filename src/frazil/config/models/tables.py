"""Settings of changelogs and mirrors, for all tables and for single ones."""

from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

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


def _check_partition(text: str) -> str:
    try:
        parse_partition_term(text)
    except ValueError as error:
        sentence = f"must be {error}"
        raise refuse(sentence) from None
    return text


def _check_sort(text: str) -> str:
    try:
        parse_sort_term(text)
    except ValueError as error:
        sentence = f"must be {error}; asc or desc and nulls first or nulls last may follow"
        raise refuse(sentence) from None
    return text


PartitionExpression = Annotated[Name, AfterValidator(_check_partition)]
SortExpression = Annotated[Name, AfterValidator(_check_sort)]
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

    namespace: Annotated[
        NamespaceTemplate, Field(description="Template; may use {schema} and {pipeline}.")
    ] = "{schema}"
    table: Annotated[
        TableTemplate, Field(description="Template; may use {schema}, {table} and {pipeline}.")
    ] = "{table}_changelog"
    column_prefix: Annotated[
        ColumnPrefix,
        Field(description="Prefix of our columns; _cdc_ unless given when the source is buffer."),
    ] = "cdc_"
    partition_by: Annotated[
        tuple[PartitionExpression, ...], Field(description="Partition expressions.")
    ] = ()


class Write(Section):
    """How data files are written."""

    target_file_size: Annotated[Size, Field(description="Files are closed at this size.")] = (
        TARGET_FILE_SIZE
    )
    compression: Annotated[
        Compression, one_of(Compression), Field(description="Parquet codec.")
    ] = Compression.ZSTD
    row_group_rows: Annotated[Count, Field(description="Rows per Parquet row group.")] = (
        ROW_GROUP_ROWS
    )


class Index(Section):
    """The key index of a mirror."""

    young_entries: Annotated[
        Count, Field(description="Entries kept in the youngest run before it is sealed.")
    ] = YOUNG_ENTRIES
    max_runs: Annotated[Count, Field(description="Runs before they are merged.")] = MAX_RUNS
    cache_dir: Annotated[LocalPath, Field(description="Local directory of index pages.")] = Path(
        "cache"
    )
    cache_bytes: Annotated[Size, Field(description="Bound of that directory.")] = CACHE_BYTES


class Mirror(Section):
    """Tables with one row per key, the newest state."""

    namespace: Annotated[
        NamespaceTemplate, Field(description="Template; may use {schema} and {pipeline}.")
    ] = "{schema}"
    table: Annotated[
        TableTemplate, Field(description="Template; may use {schema}, {table} and {pipeline}.")
    ] = "{table}"
    format_version: Annotated[
        FormatVersion, Field(description="Iceberg format of new mirrors, 3 or 2.")
    ] = 3
    partition_by: Annotated[
        tuple[PartitionExpression, ...],
        Field(description='Partition expressions, e.g. ["day(created_at)", "bucket(16, id)"].'),
    ] = ()
    sort_by: Annotated[
        tuple[SortExpression, ...], Field(description="Sort expressions of new files.")
    ] = ()
    deletes: Annotated[
        Deletes,
        one_of(Deletes),
        Field(description="apply, ignore, or soft (keeps the row and sets cdc_deleted)."),
    ] = Deletes.APPLY
    on_drop: Annotated[
        OnDrop, one_of(OnDrop), Field(description="A column dropped at the source: keep or drop.")
    ] = OnDrop.KEEP
    evolution: Annotated[
        Evolution,
        one_of(Evolution),
        Field(description="permissive, or strict: any schema change stops the table."),
    ] = Evolution.PERMISSIVE
    on_unrepresentable: Annotated[
        Unrepresentable, Field(description="Values Iceberg cannot hold: fail, string or null.")
    ] = OnUnrepresentable.FAIL
    write: Write = defaults("How data files are written.")
    index: Index = defaults("The key index.")


class WriteOverrides(Section):
    """The keys of mirror.write that one table sets differently."""

    target_file_size: Annotated[
        Size | None, Field(description="Instead of mirror.write.target_file_size.")
    ] = None
    compression: Annotated[
        Annotated[Compression, one_of(Compression)] | None,
        Field(description="Instead of mirror.write.compression."),
    ] = None
    row_group_rows: Annotated[
        Count | None, Field(description="Instead of mirror.write.row_group_rows.")
    ] = None


class IndexOverrides(Section):
    """The keys of mirror.index that one table sets differently."""

    young_entries: Annotated[
        Count | None, Field(description="Instead of mirror.index.young_entries.")
    ] = None
    max_runs: Annotated[Count | None, Field(description="Instead of mirror.index.max_runs.")] = None
    cache_dir: Annotated[
        LocalPath | None, Field(description="Instead of mirror.index.cache_dir.")
    ] = None
    cache_bytes: Annotated[
        Size | None, Field(description="Instead of mirror.index.cache_bytes.")
    ] = None


class ColumnSettings(Section):
    """What is declared about one column."""

    type: Annotated[
        ColumnType | None, Field(description="Iceberg type, instead of the mapped one.")
    ] = None
    on_unrepresentable: Annotated[
        UnrepresentableOverride,
        Field(description="Instead of the table's.", validate_default=False),
    ] = None


def _column_settings(value: object) -> object:
    return {"type": value} if isinstance(value, str) else value


Column = Annotated[
    ColumnSettings,
    BeforeValidator(_column_settings, json_schema_input_type=str | ColumnSettings),
]


class Table(Section):
    """One table: overrides of changelog and mirror, or a merge of its own without a source."""

    mirror: Annotated[TableName, Field(description="namespace.table of the mirror.")]
    changelog: Annotated[
        TableName | None,
        Field(description="namespace.table of the changelog; required without a source."),
    ] = None
    source: Annotated[
        Name | None,
        Field(
            description="schema.table at the source that becomes this mirror, where the templates "
            "would name it otherwise."
        ),
    ] = None
    key: Annotated[
        tuple[Name, ...], Field(description="Key columns; required without a source.")
    ] = ()
    sequence: Annotated[
        Name | None,
        Field(description="Column that orders changes; default {column_prefix}sequence_number."),
    ] = None
    operation: Annotated[
        Name | None,
        Field(description="Column with the operation; default {column_prefix}operation."),
    ] = None
    order: Annotated[
        Annotated[Order, one_of(Order)] | None,
        Field(
            description="append: rows arrive in source order (default); per_key: the sequence "
            "decides, whatever the arrival (default for the sources kafscale and buffer)."
        ),
    ] = None
    tombstones: Annotated[
        Duration | None,
        Field(description="How long deletes are remembered; order per_key only, default 7d."),
    ] = None
    columns: dict[str, Column] = Field(
        default_factory=dict, description="Declared columns: a type, or a mapping."
    )
    column_prefix: Annotated[
        ColumnPrefix | None, Field(description="Instead of changelog.column_prefix.")
    ] = None
    changelog_partition_by: Annotated[
        tuple[PartitionExpression, ...] | None,
        Field(description="Instead of changelog.partition_by."),
    ] = None
    format_version: Annotated[
        FormatVersion | None, Field(description="Instead of mirror.format_version.")
    ] = None
    partition_by: Annotated[
        tuple[PartitionExpression, ...] | None, Field(description="Instead of mirror.partition_by.")
    ] = None
    sort_by: Annotated[
        tuple[SortExpression, ...] | None, Field(description="Instead of mirror.sort_by.")
    ] = None
    deletes: Annotated[
        Annotated[Deletes, one_of(Deletes)] | None, Field(description="Instead of mirror.deletes.")
    ] = None
    on_drop: Annotated[
        Annotated[OnDrop, one_of(OnDrop)] | None, Field(description="Instead of mirror.on_drop.")
    ] = None
    evolution: Annotated[
        Annotated[Evolution, one_of(Evolution)] | None,
        Field(description="Instead of mirror.evolution."),
    ] = None
    on_unrepresentable: Annotated[
        UnrepresentableOverride,
        Field(description="Instead of mirror.on_unrepresentable.", validate_default=False),
    ] = None
    write: WriteOverrides = defaults("Keys of mirror.write.")
    index: IndexOverrides = defaults("Keys of mirror.index.")
