"""Random histories as messages, and what they say by the slow way: one message after another."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.codec.malformed import MalformedFileError
from frazil.codec.pgoutput.message_decoder import decode_message
from frazil.codec.pgoutput.messages import (
    Begin,
    Commit,
    Delete,
    ImageKind,
    Insert,
    LogicalMessage,
    OldImage,
    Origin,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    TruncateOption,
    TypeName,
    Update,
    Value,
    ValueKind,
)
from tests.support.pgoutput.frames import NULL, UNCHANGED, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.codec.pgoutput.bulk_decoder import DecodedFrames
    from frazil.codec.pgoutput.columns import RowImages
    from frazil.codec.pgoutput.messages import Message

Cell = str | ValueKind
Cells = tuple[Cell, ...]
SAMPLE_TEXTS = ("", "a", "frazil", "ice ❄ ice", "0", "x" * 300, "ntubNKO\0", "\n\t\\N")


def chance_of(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - repeatable on purpose


class Histories:
    """Makes one history after another out of one source of chance."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._known: dict[int, Relation] = {}
        self._lsn = 0

    def history(self) -> list[Message]:
        """Some transactions, complete and in parts, and what may be between them."""
        messages: list[Message] = [self._relation(None)]
        for _ in range(self._chance.randrange(6)):
            kind = self._chance.randrange(4)
            if kind == 0:
                messages += self._part()
            elif kind == 1:
                messages.append(self._between())
            else:
                messages += self._transaction()
        return messages

    def _transaction(self) -> list[Message]:
        self._lsn += self._chance.randrange(1, 1 << 40)
        at = self._chance.randrange(-(1 << 50), 1 << 50)
        return [
            Begin(self._lsn, at, self._chance.randrange(1 << 32)),
            *(self._inside(None) for _ in range(self._chance.randrange(9))),
            Commit(self._lsn, self._lsn + 40, at),
        ]

    def _part(self) -> list[Message]:
        xid = self._chance.randrange(1, 1 << 32)
        sub = self._chance.choice((xid, xid, self._chance.randrange(1, 1 << 32)))
        return [
            StreamStart(xid, is_first=self._chance.random() < 0.5),
            *(self._inside(sub) for _ in range(self._chance.randrange(6))),
            StreamStop(),
        ]

    def _between(self) -> Message:
        xid, sub = self._chance.randrange(1 << 32), self._chance.randrange(1 << 32)
        match self._chance.randrange(4):
            case 0:
                return self._relation(None)
            case 1:
                return StreamCommit(xid, self._lsn, self._lsn + 8, 5)
            case 2:
                return StreamAbort(xid, sub)
            case _:
                return LogicalMessage(9, "beat", b"\0\xff", is_transactional=False)

    def _inside(self, xid: int | None) -> Message:
        rare = (self._relation, self._truncate, self._type, self._message, self._origin)
        if self._chance.random() < 0.25:
            return self._chance.choice(rare)(xid)
        return self._change(xid)

    def _relation(self, xid: int | None) -> Relation:
        oid = self._chance.choice((7, 8, 1 << 31))
        columns = tuple(
            RelationColumn(f"c{number}", 25, self._chance.choice((-1, 14)), is_key=not number)
            for number in range(self._chance.randrange(4))
        )
        identity = self._chance.choice(list(ReplicaIdentity))
        found = Relation(oid, self._chance.choice(("pg_catalog", "å")), "t", identity, columns, xid)
        self._known[oid] = found
        return found

    def _truncate(self, xid: int | None) -> Truncate:
        return Truncate(tuple(self._known), TruncateOption(self._chance.randrange(4)), xid)

    def _type(self, xid: int | None) -> TypeName:
        return TypeName(17, "s", "mood", xid)

    def _message(self, xid: int | None) -> LogicalMessage:
        return LogicalMessage(self._lsn, "p", b"content", is_transactional=True, xid=xid)

    def _origin(self, _xid: int | None) -> Origin:
        return Origin(self._lsn, "elsewhere")

    def _change(self, xid: int | None) -> Insert | Update | Delete:
        relation = self._known[self._chance.choice(list(self._known))]
        width = len(relation.columns)
        kind = self._chance.choice((ImageKind.OLD_KEY, ImageKind.OLD_ROW))
        old = OldImage(kind, self._values(width))
        match self._chance.randrange(4):
            case 0:
                return Insert(relation.oid, self._values(width), xid)
            case 1:
                return Update(relation.oid, None, self._values(width), xid)
            case 2:
                return Update(relation.oid, old, self._values(width), xid)
            case _:
                return Delete(relation.oid, old, xid)

    def _values(self, width: int) -> tuple[Value, ...]:
        choices = (NULL, UNCHANGED, *map(text, SAMPLE_TEXTS))
        return tuple(self._chance.choice(choices) for _ in range(width))


@dataclass
class Row:
    """One change to a row, as both ways of decoding can give it."""

    number: int
    kind: int
    relation: Relation
    xid: int
    transaction: int
    ordinal: int
    old_kind: int | None = None
    old: Cells | None = None
    new: Cells | None = None


@dataclass
class DecodedHistory:
    """Everything that both ways of decoding can give."""

    begins: list[tuple[int, Begin]] = field(default_factory=list)
    commits: list[tuple[int, Commit]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    others: dict[int, Message] = field(default_factory=dict)
    # Transaction, ordinal and stream of the truncations.
    truncations: list[tuple[int, int, int]] = field(default_factory=list)
    ends_inside: bool = False


class SlowReplay:
    """Decodes one message after another and keeps account of where it is."""

    def __init__(self, *, inside_transaction: bool = False) -> None:
        self.decoded = DecodedHistory(ends_inside=inside_transaction)
        self._stream = 0
        self._in_stream = False
        self._transaction = -1
        self._ordinal = 0
        self._relations: dict[int, Relation] = {}

    def replay(self, messages: Sequence[bytes]) -> DecodedHistory:
        for number, data in enumerate(messages):
            message = decode_message(data, in_stream=self._in_stream)
            self._check_order(message)
            self._add(number, message)
        self._refuse_if(self._in_stream)
        return self.decoded

    @staticmethod
    def _refuse_if(wrong: bool) -> None:  # noqa: FBT001 - a question is all it takes
        if wrong:
            raise MalformedFileError("refused by the model", offset=0)

    def _check_order(self, message: Message) -> None:
        inside = self.decoded.ends_inside
        match message:
            case Begin() | StreamStart() | StreamCommit() | StreamAbort():
                self._refuse_if(inside or self._in_stream)
            case Commit():
                self._refuse_if(not inside)
            case StreamStop():
                self._refuse_if(not self._in_stream)
            case Insert() | Update() | Delete() | Truncate():
                self._refuse_if(not inside and not self._in_stream)
            case _:
                pass

    def _add(self, number: int, message: Message) -> None:
        match message:
            case Begin():
                self._transaction, self._ordinal = len(self.decoded.begins), 0
                self.decoded.begins.append((number, message))
                self.decoded.ends_inside = True
            case Commit():
                self._commit(number, message)
            case Insert() | Update() | Delete():
                self._row(number, message)
            case _:
                self.decoded.others[number] = message
                self._other(message)

    def _other(self, message: Message) -> None:
        match message:
            case StreamStart():
                self._in_stream, self._stream = True, message.xid
            case StreamStop():
                self._in_stream, self._stream = False, 0
            case Relation():
                self._relations[message.oid] = replace(message, xid=None)
            case Truncate():
                ordinal = -1 if self._in_stream else self._ordinal
                self.decoded.truncations.append((self._transaction, ordinal, self._stream))
                self._ordinal += 1
            case _:
                pass

    def _commit(self, number: int, message: Commit) -> None:
        if self._transaction >= 0:
            _, begun = self.decoded.begins[self._transaction]
            same = begun.final_lsn == message.commit_lsn
            self._refuse_if(not same or begun.committed_at != message.committed_at)
        self.decoded.commits.append((number, message))
        self.decoded.ends_inside, self._transaction = False, -1

    def _row(self, number: int, message: Insert | Update | Delete) -> None:
        relation = self._relations.get(message.relation_oid)
        if relation is None:
            raise MalformedFileError("a row of nothing", offset=0)
        old = None if isinstance(message, Insert) else message.old
        new = None if isinstance(message, Delete) else message.new
        kinds = {Insert: "I", Update: "U", Delete: "D"}
        self.decoded.rows.append(
            Row(
                number=number,
                kind=ord(kinds[type(message)]),
                relation=relation,
                xid=message.xid or 0,
                transaction=self._transaction,
                ordinal=-1 if self._in_stream else self._ordinal,
                old_kind=None if old is None else int(old.kind),
                old=None if old is None else self._cells(old.values, relation),
                new=None if new is None else self._cells(new, relation),
            )
        )
        self._ordinal += 1

    def _cells(self, values: tuple[Value, ...], relation: Relation) -> Cells:
        self._refuse_if(len(values) != len(relation.columns))
        cells: list[Cell] = []
        for value in values:
            self._refuse_if(value.kind is ValueKind.BINARY)
            try:
                found = value.data.decode()
            except UnicodeDecodeError:
                raise MalformedFileError("no UTF-8", offset=0) from None
            cells.append(found if value.kind is ValueKind.TEXT else value.kind)
        return tuple(cells)


def decoded_history(decoded: DecodedFrames) -> DecodedHistory:
    """The same account of what was decoded all at once."""
    begins, commits = decoded.begins, decoded.commits
    found = DecodedHistory(others=dict(decoded.others), ends_inside=decoded.ends_inside_transaction)
    for index in range(len(begins)):
        begin = Begin(
            int(begins.final_lsns[index]),
            int(begins.committed_at[index]),
            int(begins.xids[index]),
        )
        found.begins.append((int(begins.numbers[index]), begin))
    for index in range(len(commits)):
        commit = Commit(
            int(commits.commit_lsns[index]),
            int(commits.end_lsns[index]),
            int(commits.committed_at[index]),
        )
        found.commits.append((int(commits.numbers[index]), commit))
    found.rows = _rows(decoded)
    for number, message in decoded.others.items():
        if isinstance(message, Truncate):
            stream = int(decoded.stream_xids[number])
            found.truncations.append((*_order(decoded, number), stream))
    return found


def _order(decoded: DecodedFrames, number: int) -> tuple[int, int]:
    # A streamed one has no position in the order yet.
    is_streamed = bool(decoded.stream_xids[number])
    ordinal = -1 if is_streamed else int(decoded.ordinals[number])
    return int(decoded.transactions[number]), ordinal


def _rows(decoded: DecodedFrames) -> list[Row]:
    found: list[Row] = []
    for changes in decoded.changes:
        rows = [
            Row(number, kind, changes.relation, xid, *_order(decoded, number))
            for number, kind, xid in zip(
                changes.numbers.tolist(),
                changes.kinds.tolist(),
                changes.xids.tolist(),
                strict=True,
            )
        ]
        for index, cells in _images(changes.old):
            rows[index].old = cells
        for index, kind in zip(changes.old.changes, changes.old_kinds.tolist(), strict=True):
            rows[index].old_kind = kind
        for index, cells in _images(changes.new):
            rows[index].new = cells
        found += rows
    return sorted(found, key=lambda row: row.number)


def _images(images: RowImages) -> list[tuple[int, Cells]]:
    columns = [_cells(column.values, column.is_unchanged.tolist()) for column in images.columns]
    return [
        (index, tuple(column[row] for column in columns))
        for row, index in enumerate(images.changes.tolist())
    ]


def _cells(values: pa.StringArray, unchanged: list[bool]) -> list[Cell]:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        raise MalformedFileError("no UTF-8", offset=0) from None
    cells: list[Cell] = []
    for value, is_unchanged in zip(values.to_pylist(), unchanged, strict=True):
        if is_unchanged:
            assert value is None
            cells.append(ValueKind.UNCHANGED)
        else:
            cells.append(ValueKind.NULL if value is None else value)
    return cells
