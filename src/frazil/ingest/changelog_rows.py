"""Rows as a source gives them become rows of a changelog: names, ids and the sequence number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.model.change import SequenceNumber
from frazil.model.schema.table_layout import OwnColumn
from frazil.sources.protocol import ChangeColumn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from frazil.changelog.layout import CdcColumns

# Two digits for every byte, as one number of two bytes.
_DIGITS = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint16)
_WIDTH = len(str(SequenceNumber(0, 0, 0)))
_POSITION_AT, _ORDINAL_AT, _DIGITS_OF_NUMBER = 5, 22, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """Where a source's columns go: by their numbers to the changelog's names and ids.

    ``key`` has the names that key columns have in the previous key. ``absent`` are columns of the
    changelog that the source has not any more.
    """

    names: Mapping[int, str]
    field_ids: Mapping[int, int]
    key: Mapping[int, str]
    ours: CdcColumns
    epoch: int
    absent: tuple[str, ...] = ()

    def lay_out(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows under the changelog's names."""
        columns = {name: rows.column(str(number)) for number, name in self.names.items()}
        for name in self.absent:
            columns[name] = pa.nulls(rows.num_rows)
        for own in self.ours.layout.columns:
            if own is not OwnColumn.PREVIOUS_KEY or self.key:
                columns[self.ours.name(own)] = self._own(own, rows)
        return pa.RecordBatch.from_pydict(columns)

    def _own(self, column: OwnColumn, rows: pa.RecordBatch) -> pa.Array:
        match column:
            case OwnColumn.OPERATION:
                return rows.column(ChangeColumn.OPERATION)
            case OwnColumn.SEQUENCE_NUMBER:
                position = rows.column(ChangeColumn.POSITION).to_numpy()
                ordinal = rows.column(ChangeColumn.ORDINAL).to_numpy()
                return sequence_texts(self.epoch, position, ordinal)
            case OwnColumn.TIMESTAMP:
                return rows.column(ChangeColumn.COMMITTED_AT)
            case OwnColumn.LSN:
                return rows.column(ChangeColumn.ORIGIN)
            case OwnColumn.UNCHANGED:
                return self._field_ids_of(rows.column(ChangeColumn.UNCHANGED))
            case OwnColumn.PREVIOUS_KEY:
                return self._named(rows.column(ChangeColumn.PREVIOUS_KEY))

    def _field_ids_of(self, unchanged: pa.ListArray) -> pa.ListArray:
        """Numbers at the source become ids of the changelog, which stay when names change."""
        if unchanged.null_count == len(unchanged):
            return pa.nulls(len(unchanged), unchanged.type)
        ids = np.full(max(self.field_ids) + 1, -1, np.int32)
        for number, field_id in self.field_ids.items():
            ids[number] = field_id
        found = pa.array(ids[unchanged.flatten().to_numpy()])
        lengths = pc.fill_null(pc.list_value_length(unchanged), 0)
        offsets = np.zeros(len(unchanged) + 1, np.int32)
        np.cumsum(lengths.to_numpy(zero_copy_only=False), out=offsets[1:])
        mask = unchanged.is_null() if unchanged.null_count else None
        return pa.ListArray.from_arrays(pa.array(offsets), found, mask=mask)

    def _named(self, previous: pa.StructArray) -> pa.StructArray:
        # Flattened, members are null where the struct is.
        members = dict(
            zip((each.name for each in previous.type.fields), previous.flatten(), strict=True)
        )
        return pa.StructArray.from_arrays(
            [members[str(number)] for number in self.key],
            names=list(self.key.values()),
            mask=previous.is_null(),
        )


def sequence_texts(
    epoch: int, positions: NDArray[np.uint64], ordinals: NDArray[np.uint64]
) -> pa.StringArray:
    """What ``str(SequenceNumber(epoch, position, ordinal))`` is for each row."""
    count = len(positions)
    # Rows of one transaction follow each other, so that few positions are spelt for many rows.
    starts = np.flatnonzero(np.append(True, positions[1:] != positions[:-1])[:count])
    text = np.empty((len(starts), _WIDTH), np.uint8)
    text[:] = np.frombuffer(str(SequenceNumber(epoch, 0, 0)).encode(), np.uint8)
    _spell(positions[starts], text[:, _POSITION_AT : _POSITION_AT + _DIGITS_OF_NUMBER])
    rows = np.repeat(text.view(f"V{_WIDTH}").ravel(), np.diff(starts, append=count))
    text = rows.view(np.uint8).reshape(count, _WIDTH)
    _spell(ordinals, text[:, _ORDINAL_AT : _ORDINAL_AT + _DIGITS_OF_NUMBER])
    offsets = np.arange(0, (count + 1) * _WIDTH, _WIDTH, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))


def _spell(numbers: NDArray[np.uint64], zeros: NDArray[np.uint8]) -> None:
    """Write digits where they are needed: the highest number says how many are not zero."""
    used = (int(numbers.max(initial=0)).bit_length() + 7) // 8
    if used:
        octets = numbers.astype(">u8").view(np.uint8).reshape(len(numbers), 8)[:, -used:]
        zeros[:, -2 * used :] = _DIGITS[octets].view(np.uint8)
