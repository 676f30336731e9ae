"""A segment that is being written: its file, and what will be known about it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from frazil.codec.pgoutput.frames import SegmentAssembly
from frazil.sources.postgres.stream.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from frazil.codec.pgoutput.messages import Relation
    from frazil.sources.postgres.spool_files import NewFiles, SegmentFile
    from frazil.sources.postgres.stream.segment import OpenTransaction

_ROW_KINDS = (b"I", b"U", b"D")


class OpenSegment:
    """Keeps account of the messages that come to it; its file begins with the first write."""

    def __init__(
        self,
        name: str,
        *,
        opens: OpenTransaction | None = None,
        begins_ordinals: Mapping[int, int],
    ) -> None:
        self._name = name
        self._opens = opens
        self._begins_ordinals = begins_ordinals
        self._assembly = SegmentAssembly()
        self._file: SegmentFile | None = None
        # Changes by their first five bytes, kind and table: only of tables that are described.
        self.changes: dict[bytes, int] = {}
        self._earlier_changes: Counter[bytes] = Counter()
        self._truncations: Counter[int] = Counter()
        self._truncate_messages = 0
        self._described: set[bytes] = set()
        self._relations: list[Relation] = []
        self._xids: list[int] = []
        self._first: OpenTransaction | None = opens
        self._last: OpenTransaction | None = opens

    @property
    def size(self) -> int:
        """How many bytes were written."""
        return self._assembly.size

    @property
    def has_transactions(self) -> bool:
        """Whether any was settled in it."""
        return self._last is not None

    @property
    def relations(self) -> int:
        """How many descriptions it has."""
        return len(self._relations)

    def settle(self, transaction: OpenTransaction) -> None:
        """Account for a transaction."""
        if self._first is None:
            self._first = transaction
        self._last = transaction

    def describes(self, oid: bytes) -> bool:
        """Whether rows of this table can be read in it as the table is now."""
        return oid in self._described

    def describe(self, oid: bytes, relation: Relation, xid: int) -> None:
        """A description was added to its messages, which first came in this transaction."""
        self._described.add(oid)
        self._relations.append(relation)
        self._xids.append(xid)

    def forget(self, oid: bytes) -> None:
        """The next row of this table needs a description first."""
        self._described.discard(oid)
        for kind in _ROW_KINDS:
            self._earlier_changes[kind + oid] += self.changes.pop(kind + oid, 0)

    def forget_relations(self, kept: int) -> None:
        """Descriptions after the first so many were not added after all."""
        del self._relations[kept:]
        del self._xids[kept:]

    def truncate(self, oids: Iterable[int], *, times: int = 1) -> None:
        """A truncation of these tables was added, or taken away with ``times`` of -1."""
        self._truncate_messages += times
        for oid in oids:
            self._truncations[oid] += times

    def write(self, messages: Sequence[bytes], files: NewFiles) -> None:
        """Add messages that were accounted for to the file; raises StorageError."""
        if not messages:
            return
        if self._file is None:
            self._file = files.write(self._name)
        self._file.write(self._assembly.add(messages))

    def counts(self) -> Counter[int]:
        """By table, how many messages change rows of it or truncate it."""
        found = Counter(self._truncations)
        for counted in (self.changes, self._earlier_changes):
            for head, count in counted.items():
                found[int.from_bytes(head[1:])] += count
        return +found

    def finish(self, *, end_lsn: int | None) -> Segment:
        """Complete the file; raises StorageError."""
        if self._file is None or self._first is None or self._last is None:
            raise ValueError("a segment without a transaction has no file")
        messages = len(self._assembly)
        self._file.write(self._assembly.finish())
        self._file.finish()
        changes = sum(self.changes.values()) + self._earlier_changes.total()
        return Segment(
            name=self._name,
            size=self._assembly.size,
            messages=messages,
            rows=changes + self._truncate_messages,
            oids=frozenset(self.counts()),
            relations=tuple(self._relations),
            xids=tuple(self._xids),
            opens=self._opens,
            begins_ordinals=self._begins_ordinals,
            first_final_lsn=self._first.final_lsn,
            last_final_lsn=self._last.final_lsn,
            end_lsn=end_lsn,
            last_committed_at=self._last.committed_at,
            last_xid=self._last.xid,
        )

    def abandon(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.abandon()
