"""The verb ``decode segment``: batches or records of a KafScale segment, or its index."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from frazil.cli.output import OutputFormat, write_json, write_line, write_table
from frazil.cli.verbs.decode.stored_file import read_file
from frazil.codec.kfs import index_file
from frazil.codec.kfs.records import decode_records, parse_headers
from frazil.codec.kfs.segment import parse_segment
from frazil.codec.malformed import MalformedFileError
from frazil.errors import StorageError
from frazil.model.records.record_payload import bytes_to_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from frazil.cli.invocation import Invocation
    from frazil.cli.verbs.decode.stored_file import StoredFile
    from frazil.codec.kfs.index_file import SegmentIndex
    from frazil.codec.kfs.segment import BatchFrame, KafscaleSegment

_HEADER = (
    "BATCH", "BYTE", "OFFSETS", "RECORDS", "CODEC", "ATTRIBUTES", "TIMESTAMPS", "PRODUCER"
)  # fmt: skip
_INDEX_HEADER = ("OFFSET", "BYTE")
_NEXT_STEP = "restore the file from a copy, or see on_bad_segment in the configuration"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def show_segment(name: str, invocation: Invocation, *, records: bool) -> None:
    """Print what is in a segment or an index; both checksums and every record are checked.

    A segment that is damaged shows nothing of its batches, and records up to the damage.
    """
    file = read_file(name, invocation)
    try:
        if file.data.startswith(index_file.MAGIC):
            _print_index(file, index_file.parse_index(file.data), invocation.output)
        elif records:
            _print_records(parse_segment(file.data))
        else:
            _print_summary(file, parse_segment(file.data), invocation.output)
    except MalformedFileError as error:
        message = f"{name} is damaged or no segment: {error}."
        raise StorageError(message, next_step=_NEXT_STEP) from error


# --- records ---


def _print_records(segment: KafscaleSegment) -> None:
    for piece in decode_records(segment.batches):
        for line in _record_lines(piece):
            write_json(line, indent=None)


def _record_lines(piece: pa.RecordBatch) -> Iterator[dict[str, object]]:
    for offset, timestamp, key, value, headers in zip(
        *(column for column in piece.columns), strict=True
    ):
        block = headers.as_py()
        yield {
            "offset": offset.as_py(),
            "timestamp_ms": timestamp.as_py(),
            "key": bytes_to_json(key.as_py()),
            "value": bytes_to_json(value.as_py()),
            "headers": [
                {"key": bytes_to_json(name), "value": bytes_to_json(content)}
                for name, content in (() if block is None else parse_headers(block))
            ],
        }


# --- batches ---


@dataclass(frozen=True, slots=True)
class _Counts:
    """What is in the batches, whatever their headers say."""

    records: int
    readable: int


def _print_summary(file: StoredFile, segment: KafscaleSegment, output: OutputFormat) -> None:
    counts = _Counts(
        records=sum(each.record_count for each in segment.batches),
        # Decoded to the last one, which proves that they can be.
        readable=sum(piece.num_rows for piece in decode_records(segment.batches)),
    )
    if output is OutputFormat.JSON:
        _print_lines(file, segment, counts)
    else:
        _print_table(file, segment, counts)


def _print_lines(file: StoredFile, segment: KafscaleSegment, counts: _Counts) -> None:
    first = {
        "file": file.name,
        "kind": "segment",
        "size": len(file.data),
        "base_offset": segment.base_offset,
        "last_offset": segment.last_offset,
        "message_count": segment.message_count,
        "created_ms": segment.created_ms,
        "footer_offset": segment.footer_offset,
        "batches": len(segment.batches),
        "records": counts.records,
        "readable_records": counts.readable,
    }
    write_json(first, indent=None)
    for number, batch in enumerate(segment.batches):
        line = {
            "batch": number,
            "byte": batch.at,
            "base_offset": batch.base_offset,
            "last_offset": batch.last_offset,
            "records": batch.record_count,
            "bytes": batch.size,
            "codec": batch.compression.name.lower(),
            "attributes": batch.attributes,
            "append_time": batch.has_append_time,
            "transactional": batch.is_transactional,
            "control": batch.is_control,
            "base_timestamp_ms": batch.base_timestamp,
            "newest_timestamp_ms": batch.newest_timestamp,
            # As text, because many readers of JSON round such numbers.
            "producer_id": str(batch.producer_id),
        }
        write_json(line, indent=None)


def _print_table(file: StoredFile, segment: KafscaleSegment, counts: _Counts) -> None:
    write_line(f"# {file.name} ({len(file.data)} bytes)")
    write_line(
        f"# base offset {segment.base_offset}, {segment.message_count} messages by its header, "
        f"created {_time(segment.created_ms)}"
    )
    write_line(f"# last offset {segment.last_offset}, {segment.footer_offset} by its footer")
    aborted = counts.records - counts.readable
    of_transactions = f", {aborted} of transactions that are ended or aborted" if aborted else ""
    write_line(f"# {counts.records} records{of_transactions}; checksums are right")
    rows = [_row(number, batch) for number, batch in enumerate(segment.batches)]
    write_table(rows, header=_HEADER)


def _row(number: int, batch: BatchFrame) -> tuple[str, ...]:
    words = (
        ("append time", batch.has_append_time),
        ("transactional", batch.is_transactional),
        ("control", batch.is_control),
    )
    names = ", ".join(word for word, has_it in words if has_it)
    return (
        str(number),
        str(batch.at),
        f"{batch.base_offset}-{batch.last_offset}",
        str(batch.record_count),
        batch.compression.name.lower(),
        f"{batch.attributes:#x} ({names})" if names else f"{batch.attributes:#x}",
        f"{_time(batch.base_timestamp)} to {_time(batch.newest_timestamp)}",
        str(batch.producer_id) if batch.producer_id >= 0 else "none",
    )


def _time(milliseconds: int) -> str:
    """In UTC, or the number when no calendar has it: producers write what they like."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


# --- the index ---


def _print_index(file: StoredFile, index: SegmentIndex, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        first = {
            "file": file.name,
            "kind": "index",
            "size": len(file.data),
            "interval": index.interval,
            "entries": len(index.entries),
        }
        write_json(first, indent=None)
        for offset, byte in index.entries:
            write_json({"offset": offset, "byte": byte}, indent=None)
        return
    write_line(f"# {file.name} ({len(file.data)} bytes, an index)")
    write_line(f"# an entry for every {index.interval} messages")
    rows = [(str(offset), str(byte)) for offset, byte in index.entries]
    write_table(rows, header=_INDEX_HEADER)
