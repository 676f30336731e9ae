"""The document of KafScale's iceberg-processor, read as it is.

Upstream ignores keys it does not know, takes 0 for "the default" and ignores the case
of its modes; so do we, with a warning where something is ignored. Its metrics are open on every
interface. We keep that, but do not serve the pages: ``telemetry.pages`` is false, and
so no token is needed. Who wants the pages sets FRAZIL__TELEMETRY__PAGES and
FRAZIL__TELEMETRY__TOKEN.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.config.foreign.translation import (
    Translation,
    default_scalar,
    given,
    lowered,
    pipeline_name,
    replaced,
    variable_scalar,
    whole_number,
)
from frazil.config.loading.nodes import Fields, Items, Location, Node, Scalar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.config.models.section import KeyPath

METRICS_VARIABLE = "KAFSCALE_METRICS_ADDR"
# The processor's own defaults, where they are not ours.
METRICS_LISTEN = ":9093"
POLL_SECONDS = 5
KEY_PREFIX = "processors"

_KNOWN = {
    # The chart writes its entire section into the file; the last two mean nothing to us.
    "": frozenset(
        {"s3", "iceberg", "offsets", "discovery", "etcd", "schema", "processor", "mappings",
         "existingConfigMap", "path"}
    ),
    "s3": frozenset({"bucket", "namespace", "endpoint", "region", "path_style"}),
    "iceberg": frozenset({"catalog", "warehouse"}),
    "offsets": frozenset({"backend", "lease_ttl_seconds", "key_prefix"}),
    "discovery": frozenset({"mode"}),
    "etcd": frozenset({"endpoints", "username", "password"}),
    "schema": frozenset({"mode", "registry"}),
    "processor": frozenset({"poll_interval_seconds"}),
}  # fmt: skip
# Which settings of ours cannot be judged when a section is not a mapping.
_WRONG = {
    "s3": ("source", "bucket"),
    "iceberg": ("catalog",),
    "offsets": ("source", "offsets"),
    "discovery": ("source", "discovery"),
    "etcd": ("source", "etcd"),
    "schema": ("source", "validation"),
    "processor": ("ingest", "interval"),
}
_REGISTRY_KEYS = frozenset({"base_url", "timeout_seconds", "cache_seconds"})
_CATALOG_KEYS = frozenset({"type", "uri", "token", "username", "password"})
_CATALOG_TYPES = frozenset({"rest", "http", "https"})

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


def translate_processor(document: Fields, environ: Mapping[str, str]) -> Translation:
    """The processor's document in our form, with its own variables filled in."""
    draft = Translation(Fields({}, document.location))
    draft.warn_unknown(document, _KNOWN[""])
    sections = {name: draft.section(document, name, _WRONG[name]) for name in _WRONG}
    for name, section in sections.items():
        draft.warn_unknown(section, _KNOWN[name])
    draft.put_default(("source", "kind"), "kafscale")
    _translate_name(draft, sections)
    _translate_store(draft, sections["s3"])
    _translate_catalog(draft, sections["iceberg"])
    _translate_coordination(draft, sections)
    _translate_validation(draft, sections["schema"])
    pace = sections["processor"]
    _put_seconds(draft, ("ingest", "interval"), pace, "poll_interval_seconds", usual=POLL_SECONDS)
    _translate_mappings(draft, document, environ)
    draft.put_default(("telemetry", "listen"), METRICS_LISTEN)
    if environ.get(METRICS_VARIABLE):
        draft.put_variable(("telemetry", "listen"), METRICS_VARIABLE, environ[METRICS_VARIABLE])
    draft.put_default(("telemetry", "pages"), value=False)
    return draft


def _translate_name(draft: Translation, sections: Mapping[str, Fields]) -> None:
    """Two processors that share neither prefix nor namespace are two pipelines."""
    prefix = _text(given(sections["offsets"], "key_prefix")) or KEY_PREFIX
    namespace = _text(given(sections["s3"], "namespace"))
    name = pipeline_name(f"{prefix}_{namespace}") or KEY_PREFIX
    draft.put_default(("pipeline",), name)
    # The document is mounted read-only, so the cache cannot be next to it.
    cache = Path(tempfile.gettempdir()) / f"frazil-{os.getuid()}" / name
    draft.put_default(("mirror", "index", "cache_dir"), str(cache))


def _text(node: Node | None) -> str:
    return node.value if isinstance(node, Scalar) and isinstance(node.value, str) else ""


def _translate_store(draft: Translation, store: Fields) -> None:
    bucket = given(store, "bucket")
    if bucket is None:
        location = store.location.child("bucket")
        draft.complain(location, "is required: bucket of the segments", ("source", "bucket"))
    draft.put(("source", "bucket"), bucket)
    # Upstream reads the entire bucket when no namespace is given.
    draft.put_default(("source", "namespace"), "")
    draft.put(("source", "namespace"), given(store, "namespace"))
    for key in ("endpoint", "region", "path_style"):
        draft.put(("storage", "s3", key), given(store, key))


def _translate_catalog(draft: Translation, iceberg: Fields) -> None:
    catalog = draft.section(iceberg, "catalog", ("catalog",))
    draft.warn_unknown(catalog, _CATALOG_KEYS)
    draft.put_default(("catalog", "kind"), "rest")
    kind = lowered(given(catalog, "type"))
    if kind is None or _text(kind) not in _CATALOG_TYPES:
        location = kind.location if kind is not None else catalog.location.child("type")
        draft.complain(location, "must be rest: the processor knows no other catalog")
    uri = given(catalog, "uri")
    if uri is None:
        location = catalog.location.child("uri")
        draft.complain(location, "is required: address of the REST catalog", ("catalog", "uri"))
    draft.put(("catalog", "uri"), uri)
    _translate_sign_in(draft, catalog)
    warehouse = given(iceberg, "warehouse")
    if isinstance(warehouse, Scalar) and isinstance(warehouse.value, str):
        warehouse = replaced(warehouse, warehouse.value.rstrip("/"))
    draft.put(("catalog", "warehouse"), warehouse)


def _translate_sign_in(draft: Translation, catalog: Fields) -> None:
    token, user, password = (given(catalog, key) for key in ("token", "username", "password"))
    draft.put(("catalog", "token"), token)
    node = password or user
    if not isinstance(node, Scalar):
        return
    if token is not None:
        draft.warn(node.location, "is ignored, because a token is given too")
        return
    # Upstream hands the pair to the OAuth2 endpoint; it is not HTTP's basic sign-in.
    draft.put(("catalog", "credential"), replaced(node, f"{_text(user)}:{_text(password)}"))


def _translate_coordination(draft: Translation, sections: Mapping[str, Fields]) -> None:
    offsets, etcd = sections["offsets"], sections["etcd"]
    draft.put(("source", "offsets", "backend"), lowered(given(offsets, "backend")))
    draft.put(("source", "offsets", "key_prefix"), given(offsets, "key_prefix"))
    _put_seconds(draft, ("source", "offsets", "lease_ttl"), offsets, "lease_ttl_seconds")
    draft.put(("source", "discovery"), lowered(given(sections["discovery"], "mode")))
    endpoints = given(etcd, "endpoints")
    if isinstance(endpoints, Items):
        endpoints = Items(tuple(map(_with_scheme, endpoints.items)), endpoints.location)
    draft.put(("source", "etcd", "endpoints"), endpoints)
    draft.put(("source", "etcd", "username"), given(etcd, "username"))
    draft.put(("source", "etcd", "password"), given(etcd, "password"))


def _with_scheme(node: Node) -> Node:
    # etcd's Go client takes host:port, and means plain HTTP by it.
    if isinstance(node, Scalar) and isinstance(node.value, str) and "://" not in node.value:
        return replaced(node, f"http://{node.value}")
    return node


def _translate_validation(draft: Translation, schema: Fields) -> None:
    registry = draft.section(schema, "registry", ("source", "registry"))
    draft.warn_unknown(registry, _REGISTRY_KEYS)
    mode = _off_if_false(lowered(given(schema, "mode")))
    draft.put(("source", "validation"), mode)
    address = given(registry, "base_url")
    draft.put(("source", "registry", "base_url"), address)
    if address is None and _text(mode) not in {"", "off"}:
        location = registry.location.child("base_url")
        wrong = ("source", "registry", "base_url")
        draft.complain(location, f"is required with mode {_text(mode)}", wrong)
    _put_seconds(draft, ("source", "registry", "timeout"), registry, "timeout_seconds")
    _put_seconds(draft, ("source", "registry", "cache"), registry, "cache_seconds")


def _put_seconds(
    draft: Translation,
    path: tuple[str, ...],
    section: Fields,
    key: str,
    *,
    usual: int | None = None,
) -> None:
    """A number of seconds as a duration; 0 and nothing mean the default."""
    node = given(section, key)
    seconds = whole_number(node) if node is not None else 0
    if usual is not None:
        draft.put_default(path, f"{usual}s")
    if seconds is None or seconds < 0:
        location = node.location if node is not None else section.location
        draft.complain(location, "must be a whole number of seconds; 0 is the default", path)
    elif seconds and isinstance(node, Scalar):
        draft.put(path, replaced(node, f"{seconds}s"))


def _translate_mappings(draft: Translation, document: Fields, environ: Mapping[str, str]) -> None:
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


def _later_ones(draft: Translation, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
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


def _translate_mapping(
    draft: Translation, node: Node, index: int, overrides: dict[str, Scalar]
) -> Node:
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


def _translate_columns(draft: Translation, schema: Fields, path: KeyPath) -> dict[str, Node]:
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


def _translate_column(draft: Translation, column: Node) -> Node:
    if not isinstance(column, Fields):
        return column
    draft.warn_unknown(column, _COLUMN_KEYS)
    known = {key: node for key, node in column.entries.items() if key in _COLUMN_KEYS}
    kind = lowered(known.get("type"))
    return Fields({**known, **({"type": kind} if kind is not None else {})}, column.location)


def _translate_lfs(draft: Translation, lfs: Fields, overrides: dict[str, Scalar]) -> Fields:
    draft.warn_unknown(lfs, _LFS_KEYS)
    entries = {key: node for key in sorted(_LFS_KEYS) if (node := given(lfs, key)) is not None}
    mode = _off_if_false(lowered(entries.get("mode")))
    if mode is not None:
        entries["mode"] = mode
    return Fields({**entries, **overrides}, lfs.location)


def _off_if_false(node: Node | None) -> Node | None:
    """Helm turns an unquoted ``off`` into ``false`` on its way into the ConfigMap."""
    if isinstance(node, Scalar) and node.value is False:
        return replaced(node, "off")
    return node


def _lfs_overrides(draft: Translation, environ: Mapping[str, str]) -> dict[str, Scalar]:
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


def _check_region(draft: Translation, document: Fields, topics: tuple[Node, ...]) -> None:
    store = document.entries.get("s3")
    has_region = isinstance(store, Fields) and given(store, "region") is not None
    for topic in topics:
        lfs = topic.entries.get("lfs") if isinstance(topic, Fields) else None
        mode = lfs.entries.get("mode") if isinstance(lfs, Fields) else None
        if isinstance(mode, Scalar) and mode.value != "off" and not has_region:
            location = (store.location if store is not None else document.location).child("region")
            draft.complain(location, "is required when a mapping resolves large payloads (lfs)")
            return
