"""The mappings of KafScale's processor: topics, their tables, columns and large payloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.config.foreign.translation import (
    Draft,
    default_scalar,
    given,
    lowered,
    replaced,
    variable_scalar,
    whole_number,
)
from frazil.config.loading.nodes import Fields, Items, Location, Node, Scalar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.config.models.section import KeyPath

LFS_VARIABLES = "KAFSCALE_ICEBERG_LFS_"

_MAPPING_KEYS = frozenset({"topic", "table", "mode", "create_table_if_missing", "schema", "lfs"})
_SCHEMA_KEYS = frozenset({"source", "columns", "allow_type_widening"})
_COLUMN_KEYS = frozenset({"name", "type", "required"})
_NUMBERS = ("max_inline_size", "resolve_concurrency")
_TRUTHS = ("store_metadata", "validate_checksum")
_LFS_KEYS = frozenset({"mode", *_NUMBERS, *_TRUTHS})
# What Go's strconv.ParseBool takes.
_GO_TRUTHS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), "true"),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), "false"),
}


def translate_mappings(draft: Draft, document: Fields, environ: Mapping[str, str]) -> None:
    """Mappings become topics; of two for one topic the later wins, as upstream."""
    nodes = draft.listed(document, "mappings", ("source", "topics"))
    if not nodes:
        location = document.entries["mappings"].location if "mappings" in document.entries else None
        draft.warn(
            location or document.location.child("mappings"),
            "is empty: no topic will be written anywhere",
        )
        return
    overrides = _lfs_overrides(draft, environ)
    kept = _later_ones(draft, nodes)
    topics = tuple(
        _translate_mapping(draft, node, index, overrides) for index, node in enumerate(kept)
    )
    draft.put(("source", "topics"), Items(topics, document.entries["mappings"].location))
    _check_region(draft, document, topics)


def _later_ones(draft: Draft, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    last: dict[object, int] = {}
    for index, node in enumerate(nodes):
        topic = _topic_of(node)
        if topic in last:
            earlier = nodes[last[topic]]
            draft.warn(earlier.location, "is ignored: a later mapping names the same topic")
        last[topic if topic is not None else ("unnamed", index)] = index
    return tuple(nodes[index] for index in sorted(last.values()))


def _topic_of(node: Node) -> str | None:
    topic = given(node, "topic") if isinstance(node, Fields) else None
    return topic.value if isinstance(topic, Scalar) and isinstance(topic.value, str) else None


def _translate_mapping(draft: Draft, node: Node, index: int, overrides: dict[str, Scalar]) -> Node:
    path: KeyPath = ("source", "topics", index)
    if not isinstance(node, Fields):
        draft.complain(node.location, "must be a mapping", path)
        return node
    draft.warn_unknown(node, _MAPPING_KEYS)
    entries: dict[str, Node] = {}
    for key, meaning in (("topic", "name of the topic"), ("table", "namespace.table")):
        below = given(node, key)
        if below is None:
            draft.complain(node.location.child(key), f"is required: {meaning}", (*path, key))
        else:
            entries[key] = below
    mode = lowered(given(node, "mode"))
    if mode is not None and not (isinstance(mode, Scalar) and mode.value == "append"):
        draft.complain(mode.location, "must be append: the processor knows no other mode")
    # Upstream creates and widens only when configured to; we do both by default.
    entries["create"] = given(node, "create_table_if_missing") or default_scalar(
        node, "create", value=False
    )
    schema = draft.section(node, "schema", path)
    entries["widen"] = given(schema, "allow_type_widening") or default_scalar(
        node, "widen", value=False
    )
    entries.update(_translate_columns(draft, schema, path))
    lfs = draft.section(node, "lfs", (*path, "lfs"))
    entries["lfs"] = _translate_lfs(draft, lfs, overrides)
    return Fields(entries, node.location)


def _translate_columns(draft: Draft, schema: Fields, path: KeyPath) -> dict[str, Node]:
    draft.warn_unknown(schema, _SCHEMA_KEYS)
    entries: dict[str, Node] = {}
    source = lowered(given(schema, "source"))
    if source is not None:
        entries["columns_from"] = source
    columns = draft.listed(schema, "columns", (*path, "columns"))
    if columns:
        translated = tuple(_translate_column(draft, column) for column in columns)
        entries["columns"] = Items(translated, schema.entries["columns"].location)
    return entries


def _translate_column(draft: Draft, column: Node) -> Node:
    if not isinstance(column, Fields):
        return column
    draft.warn_unknown(column, _COLUMN_KEYS)
    known = {key: node for key, node in column.entries.items() if key in _COLUMN_KEYS}
    kind = lowered(known.get("type"))
    return Fields({**known, **({"type": kind} if kind is not None else {})}, column.location)


def _translate_lfs(draft: Draft, lfs: Fields, overrides: dict[str, Scalar]) -> Fields:
    draft.warn_unknown(lfs, _LFS_KEYS)
    entries = {key: node for key in sorted(_LFS_KEYS) if (node := given(lfs, key)) is not None}
    mode = off_if_false(lowered(entries.get("mode")))
    if mode is not None:
        entries["mode"] = mode
    return Fields({**entries, **overrides}, lfs.location)


def off_if_false(node: Node | None) -> Node | None:
    """Helm turns an unquoted ``off`` into ``false`` on its way into the ConfigMap."""
    if isinstance(node, Scalar) and node.value is False:
        return replaced(node, "off")
    return node


def _lfs_overrides(draft: Draft, environ: Mapping[str, str]) -> dict[str, Scalar]:
    """The variables that override every mapping; what does not parse is ignored, as upstream."""
    found: dict[str, Scalar] = {}
    for key in sorted(_LFS_KEYS):
        name = f"{LFS_VARIABLES}{key.upper()}"
        text = environ.get(name, "").strip()
        value: str | None = text.lower()
        if key in _TRUTHS:
            value = _GO_TRUTHS.get(text)
        elif key in _NUMBERS:
            value = text if whole_number(variable_scalar(name, key, text)) is not None else None
        if text and value is None:
            draft.warn(Location(f"environment {name}", ""), "does not parse and is ignored")
        elif text and value is not None:
            found[key] = variable_scalar(name, f"mappings[].lfs.{key}", value)
    return found


def _check_region(draft: Draft, document: Fields, topics: tuple[Node, ...]) -> None:
    store = document.entries.get("s3")
    has_region = isinstance(store, Fields) and given(store, "region") is not None
    for topic in topics:
        lfs = topic.entries.get("lfs") if isinstance(topic, Fields) else None
        mode = lfs.entries.get("mode") if isinstance(lfs, Fields) else None
        if isinstance(mode, Scalar) and mode.value != "off" and not has_region:
            location = (store.location if store is not None else document.location).child("region")
            draft.complain(location, "is required when a mapping resolves large payloads (lfs)")
            return
