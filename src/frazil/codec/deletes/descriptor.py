"""A delete file as JSON of Iceberg's ``ContentFileParser``, for the driver to commit."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class FilePartition:
    """The spec and partition of a data file, which its deletes must share exactly.

    Otherwise every scan of the table fails. ``partition`` maps partition field ids to values in
    Iceberg's JSON form; a field whose value is null is left out.
    """

    spec_id: int = 0
    partition: Mapping[int, str | int | float | bool] = field(default_factory=dict)


def describe_delete_file(
    location: str,
    *,
    file_format: str,
    file_size: int,
    record_count: int,
    data_file: str,
    placement: FilePartition,
    more: Mapping[str, object],
) -> str:
    """One position delete file, or one deletion vector of a Puffin file, as a line of JSON."""
    members = {
        "spec-id": placement.spec_id,
        "content": "POSITION_DELETES",
        "file-path": location,
        "file-format": file_format,
        "partition": {str(key): value for key, value in placement.partition.items()},
        "file-size-in-bytes": file_size,
        "record-count": record_count,
        **more,
        "referenced-data-file": data_file,
    }
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))
