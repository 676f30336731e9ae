"""The location of a new data file, as Iceberg's own location providers would choose it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.clients.iceberg.write.murmur3 import hash_text
from frazil.clients.iceberg.write.partition_text import human_text, path_part

if TYPE_CHECKING:
    from frazil.clients.iceberg.write.partition_text import PartitionValue
    from frazil.clients.iceberg.write.write_target import HashedPaths, WriteTarget

# Iceberg's layout: the last twenty bits as three folders of four and one of eight.
_HASH_BITS = 20
_FOLDERS = (slice(0, 4), slice(4, 8), slice(8, 12), slice(12, 20))


def file_location(target: WriteTarget, partition: tuple[PartitionValue, ...], name: str) -> str:
    """The location of a file with this name in this partition, in the table's own spelling."""
    folders = partition_path(target, partition)
    if target.hashed_paths is not None:
        return f"{target.data_location}/{_hashed(target.hashed_paths, folders, name)}"
    return "/".join(filter(None, (target.data_location, folders, name)))


def partition_path(target: WriteTarget, partition: tuple[PartitionValue, ...]) -> str:
    """``a=1/b=2``, or empty for a table without partitions."""
    return "/".join(
        path_part(field.name, human_text(value, field.transform.kind, type_))
        for field, value, type_ in zip(
            target.spec.fields, partition, target.partition_types, strict=True
        )
    )


def _hashed(layout: HashedPaths, folders: str, name: str) -> str:
    within = f"{folders}/{name}" if folders and layout.partition_paths else name
    bits = f"{hash_text(within) & (2**_HASH_BITS - 1):0{_HASH_BITS}b}"
    entropy = "/".join(bits[part] for part in _FOLDERS)
    if layout.context is not None:
        return f"{entropy}/{layout.context}/{within}"
    return f"{entropy}/{within}" if layout.partition_paths else f"{entropy}-{within}"
