"""What makes a table the one that was captured so far, as text to be recorded and compared.

pgoutput announces none of it: a table that was dropped and created again, that left the
publication and came back, or of which other rows are sent looks the same in the stream.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil.sources.postgres.catalog_view import CatalogView

# A table that was dropped and created again, or is on another server, differs in nearly
# everything; only the first reason is worth telling.
_DECISIVE = (
    ("system", "it is on another server"),
    ("database", "it is in another database"),
    ("relation", "it was dropped and created again, or another table took its name"),
    ("publication", "its publication was dropped and created again, or is another one"),
)
_OTHERS = (
    ("membership", "it left the publication and entered it again"),
    ("filter", "its row filter changed"),
    ("columns", "its column list changed"),
    ("publish", "the kinds of changes that are published changed"),
    ("via_root", "the publication sends partitions otherwise than before"),
    ("generated", "the publication sends generated columns otherwise than before"),
)
_UNREADABLE = ("what was recorded of it cannot be read",)


def identity_of(view: CatalogView) -> str:
    """One line of JSON, the same for as long as nothing happened that means a resync.

    The columns are part of it only where a list names them: else they come and go, and the stream
    tells. The timeline is none of the table's business, nor is the replica identity.
    """
    published, publication = view.published, view.publication
    flags = {
        "insert": publication.sends_inserts,
        "update": publication.sends_updates,
        "delete": publication.sends_deletes,
        "truncate": publication.sends_truncates,
    }
    document = {
        "system": view.server.system_identifier,
        "database": view.server.database,
        "relation": view.table.oid,
        "publication": publication.oid,
        "membership": published.membership_oid,
        "filter": published.row_filter,
        # By number: a renamed column stays in the list.
        "columns": [each.number for each in view.sent] if published.has_column_list else None,
        "publish": [word for word, is_sent in flags.items() if is_sent],
        "via_root": publication.via_root,
        "generated": publication.sends_generated,
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def relation_oid(identity: str) -> int | None:
    """The number of the relation that changes of this table come under."""
    document = _read(identity)
    found = None if document is None else document.get("relation")
    return found if isinstance(found, int) else None


def identity_differences(before: str, now: str) -> tuple[str, ...]:
    """What happened to the table between two identities, in words; none if they are the same."""
    if before == now:
        return ()
    old, new = _read(before), _read(now)
    if old is None or new is None:
        return _UNREADABLE
    for name, words in _DECISIVE:
        if old.get(name) != new.get(name):
            return (words,)
    return tuple(words for name, words in _OTHERS if old.get(name) != new.get(name)) or _UNREADABLE


def _read(text: str) -> dict[str, Any] | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
