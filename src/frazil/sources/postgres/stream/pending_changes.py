"""Which tables have changes that a slot keeps and that were not read yet; peeking removes nothing.

Only for a slot without a reader: the server admits one reader at a time, for peeking too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.codec.pgoutput.message_decoder import decode_message
from frazil.codec.pgoutput.messages import Begin, MessageKind, Truncate
from frazil.model.postgres.lsn import format_lsn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from frazil.clients.postgres.session import Session

_ROWS = (MessageKind.INSERT, MessageKind.UPDATE, MessageKind.DELETE)
_OTHERS = (MessageKind.BEGIN, MessageKind.TRUNCATE)
# Of a row only the table is wanted, which is behind the kind of the message.
_HEAD_BYTES = 5
# Streaming and two-phase, which newer protocols have, would need more kinds of messages.
_PEEK = """
    select
        case
            when get_byte(data, 0) = any (%(rows)s::int[]) then substring(data for %(head)s)
            else data
        end
    from pg_logical_slot_peek_binary_changes(
        %(slot)s::name, %(until)s::pg_lsn, null,
        'proto_version', '1', 'publication_names', quote_ident(%(publication)s)
    )
    where get_byte(data, 0) = any (%(rows)s::int[] || %(others)s::int[])
"""


def load_pending(session: Session, *, slot: str, publication: str, until: int) -> Mapping[int, int]:
    """The tables that have such changes before ``until``, each with its last one's position.

    Tables go by their numbers at the server. Raises SlotBusyError while the slot is read.
    """
    parameters = {
        "slot": slot,
        "publication": publication,
        "until": format_lsn(until),
        "rows": [each.value for each in _ROWS],
        "others": [each.value for each in _OTHERS],
        "head": _HEAD_BYTES,
    }
    doing = f"peeking at what the slot {slot} keeps"
    return _last_changes(session.load(bytes, _PEEK, parameters, doing=doing), until)


def _last_changes(messages: Iterable[bytes], until: int) -> dict[int, int]:
    found: dict[int, int] = {}
    position = 0
    for data in messages:
        if len(data) == _HEAD_BYTES:
            tables: tuple[int, ...] = (int.from_bytes(data[1:]),)
        else:
            message = decode_message(data, in_stream=False)
            if isinstance(message, Begin):
                position = message.final_lsn
            tables = message.relation_oids if isinstance(message, Truncate) else ()
        if position < until:
            found |= dict.fromkeys(tables, position)
    return found
