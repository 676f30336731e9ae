"""Everything a task must know to write data files of one table: plain, picklable values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.clients.iceberg.write.column_metrics import bound_lengths
from frazil.errors import ConfigError
from frazil.model.schema.partitioning import UNPARTITIONED, UNSORTED, PartitionSpec, SortOrder
from frazil.model.schema.types import Nested, Primitive

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.model.schema.types import Scalar, Schema

_MIB = 2**20
# Large enough for long scans, small enough that a task buffers and a compaction rewrites little.
TARGET_FILE_BYTES = 128 * _MIB
# Arrow memory of one row group: what a task buffers at most before it encodes.
ROW_GROUP_BYTES = 64 * _MIB
# Arrow's own limit for the rows of a row group.
ROW_GROUP_ROWS = 2**20

# Iceberg's names, and Arrow's; Hadoop's framing of LZ4 is not Arrow's, so it is not here.
_CODECS = {
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "brotli": "brotli",
    "lz4_raw": "lz4",
    "uncompressed": "none",
    "none": "none",
}
_BLOOM_PREFIX = "write.parquet.bloom-filter-enabled.column."
_FPP_PREFIX = "write.parquet.bloom-filter-fpp.column."
_NDV_PREFIX = "write.parquet.bloom-filter-ndv.column."
# Iceberg's default for the rate of false positives.
_FALSE_POSITIVES = 0.01
_REFUSED = {
    "encryption.key-id": "encrypted tables cannot be written",
    "write.location-provider.impl": "a location provider in Java is not supported",
    "write.object-storage.path": "it was replaced by write.data.path",
    "write.folder-storage.path": "it was replaced by write.data.path",
}


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A filter configured by the table; ``column`` is the dotted name."""

    column: str
    false_positives: float
    distinct_values: int


@dataclass(frozen=True, slots=True)
class HashedPaths:
    """Object-store layout: a hash before the path, to distribute load over prefixes."""

    context: str | None
    partition_paths: bool


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """One table as a writer needs it. Has credentials, which ``repr`` hides."""

    table: str
    data_location: str
    schema: Schema
    spec: PartitionSpec = UNPARTITIONED
    format_version: int = 3
    io_properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    target_file_bytes: int = TARGET_FILE_BYTES
    row_group_bytes: int = ROW_GROUP_BYTES
    row_group_rows: int = ROW_GROUP_ROWS
    compression: str = "zstd"
    compression_level: int | None = None
    page_bytes: int | None = None
    dictionary_bytes: int | None = None
    bound_lengths: tuple[tuple[int, int], ...] = ()
    bloom_filters: tuple[BloomFilter, ...] = ()
    hashed_paths: HashedPaths | None = None
    sort_order_id: int = 0

    @property
    def partition_types(self) -> tuple[Scalar, ...]:
        """The type of each partition value; a void field's never matters."""
        types = []
        for each in self.spec.fields:
            column = self.schema.by_id(each.source_id)
            source = Primitive.INT if column is None else column.field.type
            scalar = Primitive.INT if isinstance(source, Nested) else source
            types.append(each.transform.result(scalar))
        return tuple(types)


def plan_write_target(
    *,
    table: str,
    location: str,
    schema: Schema,
    spec: PartitionSpec = UNPARTITIONED,
    sort_order: SortOrder = UNSORTED,
    properties: Mapping[str, str],
    io_properties: Mapping[str, str],
    format_version: int = 3,
    target_file_bytes: int = TARGET_FILE_BYTES,
) -> WriteTarget:
    """The target as configured by the table's properties; the given file size is a default.

    Raises ConfigError, naming the property, for one that is not supported.
    """
    spec.check(schema)
    _refuse_unsupported(table, properties)
    data_location = properties.get("write.data.path", f"{location}/data").rstrip("/")
    row_group = _number(table, properties, "write.parquet.row-group-size-bytes")
    return WriteTarget(
        table=table,
        data_location=data_location,
        schema=schema,
        spec=spec,
        format_version=format_version,
        io_properties=tuple(sorted(io_properties.items())),
        target_file_bytes=_number(table, properties, "write.target-file-size-bytes")
        or target_file_bytes,
        # More than our own bound would cost memory; less is the table's choice.
        row_group_bytes=min(row_group or ROW_GROUP_BYTES, ROW_GROUP_BYTES),
        compression=_codec(table, properties),
        compression_level=_number(table, properties, "write.parquet.compression-level"),
        page_bytes=_number(table, properties, "write.parquet.page-size-bytes"),
        dictionary_bytes=_number(table, properties, "write.parquet.dict-size-bytes"),
        bound_lengths=tuple(sorted(bound_lengths(schema, properties, sort_order).items())),
        bloom_filters=_bloom_filters(table, schema, properties),
        hashed_paths=_hashed_paths(location, data_location, properties),
    )


def _refuse_unsupported(table: str, properties: Mapping[str, str]) -> None:
    for name, reason in _REFUSED.items():
        if name in properties:
            message = f"the table property {name} is set: {reason}"
            raise ConfigError(message, table=table)
    wanted = properties.get("write.format.default", "parquet").lower()
    if wanted != "parquet":
        message = "the table property write.format.default is not parquet, which is all we write"
        raise ConfigError(message, table=table)


def _codec(table: str, properties: Mapping[str, str]) -> str:
    name = properties.get("write.parquet.compression-codec", "zstd").lower()
    if name not in _CODECS:
        message = f"write.parquet.compression-codec {name[:40]!r}: use one of {', '.join(_CODECS)}"
        raise ConfigError(message, table=table)
    return _CODECS[name]


def _number(table: str, properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name)
    # Iceberg writes ``null`` when a level is unset.
    if text is None or text == "null":
        return None
    if not text.isdecimal() or int(text) == 0:
        message = f"the table property {name} is not a number above zero"
        raise ConfigError(message, table=table)
    return int(text)


def _is_true(properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    return properties.get(name, str(default)).lower() == "true"


def _bloom_filters(
    table: str, schema: Schema, properties: Mapping[str, str]
) -> tuple[BloomFilter, ...]:
    columns = [
        key.removeprefix(_BLOOM_PREFIX)
        for key in sorted(properties)
        if key.startswith(_BLOOM_PREFIX) and _is_true(properties, key, default=False)
    ]
    for name in columns:
        column = schema.by_name(name)
        if column is None or not column.is_leaf or column.field.type is Primitive.BOOLEAN:
            message = f"the table property {_BLOOM_PREFIX}{name}: no filter can be made for it"
            raise ConfigError(message, table=table)
    return tuple(
        BloomFilter(
            name,
            _chance(table, properties, f"{_FPP_PREFIX}{name}"),
            _number(table, properties, f"{_NDV_PREFIX}{name}") or ROW_GROUP_ROWS,
        )
        for name in columns
    )


def _chance(table: str, properties: Mapping[str, str], name: str) -> float:
    text = properties.get(name, str(_FALSE_POSITIVES))
    try:
        chance = float(text)
    except ValueError:
        chance = 0.0
    if not 0 < chance < 1:
        message = f"the table property {name} is not a number between zero and one"
        raise ConfigError(message, table=table)
    return chance


def _hashed_paths(
    location: str, data_location: str, properties: Mapping[str, str]
) -> HashedPaths | None:
    if not _is_true(properties, "write.object-storage.enabled", default=False):
        return None
    # Outside the table's own folder the path must still name the table.
    inside = data_location.startswith(location)
    context = None if inside else "/".join(location.rstrip("/").split("/")[-2:])
    partitioned = _is_true(properties, "write.object-storage.partitioned-paths", default=True)
    return HashedPaths(context, partitioned)
