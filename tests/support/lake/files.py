"""Small data files written by hand, for tests of commits: what matters is that they are there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs
from pyarrow import parquet as pq

from frazil.model.schema.types import Field, Primitive, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.demo.services import ObjectStore

SCHEMA = Schema(
    0,
    (Field(1, "id", Primitive.LONG, required=True), Field(2, "name", Primitive.STRING)),
    frozenset({1}),
)
_ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "1"}),
        pa.field("name", pa.string(), metadata={"PARQUET:field_id": "2"}),
    ]
)


@dataclass(frozen=True, slots=True)
class FileWriter:
    """Writes into any warehouse the tests use."""

    store: ObjectStore | None = None

    def write(self, table_location: str, ids: Sequence[int], folder: str = "data") -> str:
        """One file with these ids; returns its descriptor."""
        location = f"{table_location}/{folder}/{uuid4()}.parquet"
        system, path = self._system(location)
        names = [f"name {number}" for number in ids]
        with system.open_output_stream(path) as sink:
            pq.write_table(pa.table({"id": list(ids), "name": names}, schema=_ARROW), sink)
        return json.dumps(
            {
                "spec-id": 0,
                "content": "DATA",
                "file-path": location,
                "file-format": "PARQUET",
                "partition": {},
                "file-size-in-bytes": system.get_file_info(path).size,
                "record-count": len(ids),
            }
        )

    def put(self, location: str, content: bytes) -> None:
        """Any file."""
        system, path = self._system(location)
        with system.open_output_stream(path) as sink:
            sink.write(content)

    def exists(self, location: str) -> bool:
        """Whether the file is still there."""
        system, path = self._system(location)
        return bool(system.get_file_info(path).type == fs.FileType.File)

    def _system(self, location: str) -> tuple[fs.FileSystem, str]:
        parts = urlsplit(location)
        if parts.scheme == "file":
            Path(parts.path).parent.mkdir(parents=True, exist_ok=True)
            return fs.LocalFileSystem(), parts.path
        assert self.store is not None
        system = fs.S3FileSystem(
            endpoint_override=self.store.endpoint,
            access_key=self.store.access_key,
            secret_key=self.store.secret_key,
            region=self.store.region,
        )
        return system, f"{parts.netloc}{parts.path}"


def path_of(descriptor: str) -> str:
    """Where the described file lies."""
    return str(json.loads(descriptor)["file-path"])
