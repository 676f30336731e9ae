"""What makes a table the one that was captured so far, as text to be recorded and compared.

pgoutput announces none of it: a table that was dropped and created again, that left the publication
and came back, or of which other rows are sent is the same in the stream.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.sources.postgres.tables.catalog_view import CatalogView

# A table that was dropped and created again, or is on another server, differs in nearly everything;
# only the first reason is reported.
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
# Facts that older versions did not record: what is not recorded is not known to have changed.
_LATER = (
    ("options", "the options of its publication were changed, perhaps only for a while"),
    ("schema", "it was moved to another schema and back, and was not published meanwhile"),
)
_UNREADABLE = ("what was recorded of it cannot be read",)
_CAME_BACK = (
    "it was gone, and nothing kept its changes meanwhile from being left out: it is partitioned, "
    "or its publication has it only as one of all tables or of its schema"
)
_UNLOGGED = "it was unlogged for a while, and its changes then were in no log"
_OTHER_KEY = "its key was dropped, so that two rows may have had one key since"


def identity_of(view: CatalogView, key: tuple[str, ...] = ()) -> str:
    """One line of JSON; what of it may change without a resync, ``identity_differences`` knows.

    ``key`` are the columns configured as the key, none for the primary key. The columns are part of
    it only where a list names them: else they come and go, and the stream announces it. The
    timeline and the replica identity are not part of it.
    """
    published, publication = view.published, view.publication
    is_implicit = published.is_implicit
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
        "publish": [kind for kind, is_sent in flags.items() if is_sent],
        "via_root": publication.via_root,
        "generated": publication.sends_generated,
        "options": publication.options_changed_by,
        # Who names a table in a publication keeps it from becoming unlogged, but not its leaves.
        "implicit": is_implicit or view.table.is_partitioned,
        # A publication of all tables does not care for schemas.
        "schema": view.table.moved_by if is_implicit and published.membership_oid else None,
        "toast": view.table.toast_oid if is_implicit else None,
        "described": _described(view) if is_implicit else None,
        **_key(view, key),
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def relation_oid(identity: str) -> int | None:
    """The number of the relation that changes of this table come under."""
    document = _read(identity)
    found = None if document is None else document.get("relation")
    return found if isinstance(found, int) else None


def identity_differences(before: str, now: str, *, was_gone: bool = False) -> tuple[str, ...]:
    """What happened to the table between two identities, as sentences; none if nothing relevant.

    ``was_gone`` says that it was not there, or not published, at a check in between.
    """
    if before == now and not was_gone:
        return ()
    old, new = _read(before), _read(now)
    if old is None or new is None or any(name not in old for name, _ in (*_DECISIVE, *_OTHERS)):
        return _UNREADABLE
    for name, text in _DECISIVE:
        if old[name] != new[name]:
            return (text,)
    if was_gone and new["implicit"]:
        return (_CAME_BACK,)
    return (
        *(text for name, text in _OTHERS if old[name] != new[name]),
        *_later_differences(old, new),
    )


def _later_differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for name, text in _LATER:
        if name in old and old[name] != new[name]:
            yield text
    # A change of a type writes all rows again as well, and then describes a column otherwise.
    is_rewritten = old.get("toast") and new["toast"] and old["toast"] != new["toast"]
    if is_rewritten and old["described"] == new["described"]:
        yield _UNLOGGED
    keys = old.get("key_oids")
    if keys and not set(keys) & set(new["key_oids"]) and not _is_retyped(old, new):
        yield _OTHER_KEY


def _is_retyped(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether the key was made again with its columns' types: there was no moment without one."""
    return bool(new["key_made_with_columns"]) and old["key_types"] != new["key_types"]


def _key(view: CatalogView, key: tuple[str, ...]) -> dict[str, object]:
    """What keeps the rows apart by the columns of the key, each under its own number."""
    table = view.table
    columns = key or (table.key.columns if table.key else ())
    found = [each for each in map(table.attribute, columns) if each is not None]
    changed = dict(table.changed_by)
    writers = {changed.get(each.number) for each in found}
    keys = table.keys_within(columns)
    return {
        "key_oids": sorted({oid for each in keys for oid in (each.oid, each.index_oid) if oid}),
        "key_types": [[each.number, each.type_oid, each.type_modifier] for each in found],
        "key_made_with_columns": any(each.made_by in writers for each in keys),
    }


def _described(view: CatalogView) -> str:
    """The same for as long as no column came, went or was changed."""
    return sha256(repr(view.table.changed_by).encode()).hexdigest()[:16]


def _read(text: str) -> dict[str, Any] | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
