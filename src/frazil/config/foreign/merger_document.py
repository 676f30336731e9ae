"""The document of Supabase's iceberg merger, read as it is.

Its section ``iceberg`` is a REST catalog and an S3 store, its tables are merges whose order is
``per_key``, because it promises the latest change by sequence whatever the arrival.
"""

from __future__ import annotations

import os
import re
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.config.foreign.translation import (
    Translation,
    default_scalar,
    given,
    pipeline_name,
    replaced,
    whole_number,
)
from frazil.config.loading.nodes import Fields, Items, Location, Node, Scalar
from frazil.config.loading.overrides import unknown_name_sentence
from frazil.config.models.values import LONGEST_DURATION, format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

# The merger's own default.
BATCH_SIZE = 10_000

_KEYS = (
    "project_ref", "environment", "iceberg", "tables", "merge_interval", "merge_interval_secs",
    "batch_size", "sentry",
)  # fmt: skip
_TABLE_KEYS = frozenset(
    {"namespace", "changelog_table", "mirror_table", "primary_keys", "sequence_column",
     "operation_column"}
)  # fmt: skip
_ICEBERG_KEYS = {
    ("catalog", "uri"): ("catalog_url", "catalog_uri", "uri"),
    ("catalog", "token"): ("catalog_token", "token"),
    ("catalog", "warehouse"): ("warehouse", "warehouse_name"),
    ("storage", "s3", "endpoint"): ("s3_endpoint",),
    ("storage", "s3", "region"): ("s3_region",),
    ("storage", "s3", "access_key_id"): ("s3_access_key_id",),
    ("storage", "s3", "secret_access_key"): ("s3_secret_access_key",),
}
_VARIABLES = {
    "ICEBERG_CATALOG_TOKEN": ("catalog", "token"),
    "ICEBERG_S3_ACCESS_KEY_ID": ("storage", "s3", "access_key_id"),
    "ICEBERG_S3_SECRET_ACCESS_KEY": ("storage", "s3", "secret_access_key"),
    "SENTRY_DSN": ("telemetry", "sentry", "dsn"),
    "APP_VERSION": ("telemetry", "release"),
}
_RUST_LEVELS = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "warn": "warning",
    "error": "error",
    "off": "error",
}
_HUMAN_PART = re.compile(r"([0-9]{1,12})\s*([a-z]+)\s*", re.IGNORECASE)
_HUMAN_UNITS = {
    timedelta(milliseconds=1): ("ms", "msec", "millis"),
    timedelta(seconds=1): ("s", "sec", "secs", "second", "seconds"),
    timedelta(minutes=1): ("m", "min", "mins", "minute", "minutes"),
    timedelta(hours=1): ("h", "hr", "hrs", "hour", "hours"),
    timedelta(days=1): ("d", "day", "days"),
    timedelta(weeks=1): ("w", "week", "weeks"),
}
_INTERVAL_TEXT = "must be a duration such as 1h or 1h 30m, or a number of seconds"


def translate_merger(document: Fields, environ: Mapping[str, str]) -> Translation:
    """The merger's document in our form, with its own variables filled in where it is silent."""
    draft = Translation(Fields({}, document.location))
    for key, node in document.entries.items():
        if key not in _KEYS:
            draft.complain(node.location, unknown_name_sentence(key, _KEYS))
    _translate_project(draft, document)
    _translate_iceberg(draft, document)
    _translate_tables(draft, document)
    _translate_pace(draft, document)
    sentry = draft.section(document, "sentry", ("telemetry", "sentry", "dsn"))
    draft.put(("telemetry", "sentry", "dsn"), given(sentry, "dsn"))
    draft.put(("telemetry", "sentry", "environment"), given(document, "environment"))
    _fill_from_environment(draft, environ)
    return draft


def _translate_project(draft: Translation, document: Fields) -> None:
    node = given(document, "project_ref")
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        location = node.location if node is not None else document.location.child("project_ref")
        draft.complain(location, "is required: text that names the pipeline", ("pipeline",))
        return
    name = pipeline_name(node.value)
    if name != node.value:
        draft.warn(node.location, f"the pipeline is called {name}, the nearest legal slot name")
    draft.put(("pipeline",), replaced(node, name))
    # The document is usually mounted read-only, so the cache cannot be next to it.
    cache = Path(tempfile.gettempdir()) / f"frazil-{os.getuid()}" / (name or "merger")
    draft.put_default(("mirror", "index", "cache_dir"), str(cache))


def _translate_iceberg(draft: Translation, document: Fields) -> None:
    iceberg = draft.section(document, "iceberg", ("catalog",))
    known = {key for keys in _ICEBERG_KEYS.values() for key in keys} | {"namespace"}
    draft.warn_unknown(iceberg, frozenset(known))
    draft.put_default(("catalog", "kind"), "rest")
    for path, keys in _ICEBERG_KEYS.items():
        draft.put(path, given(iceberg, *keys))
    if given(iceberg, *_ICEBERG_KEYS["catalog", "uri"]) is None:
        location = iceberg.location.child("catalog_url")
        draft.complain(location, "is required: address of the REST catalog", ("catalog", "uri"))
    if given(iceberg, "s3_endpoint") is not None:
        # The store behind the merger puts the bucket into the path, and so do stores like it.
        draft.put_default(("storage", "s3", "path_style"), value=True)


def _translate_tables(draft: Translation, document: Fields) -> None:
    nodes = draft.listed(document, "tables", ("tables",))
    if not nodes and ("tables",) not in draft.wrong:
        location = document.location.child("tables")
        draft.complain(location, "is required: at least one table to merge", ("tables",))
    namespace = given(draft.section(document, "iceberg"), "namespace")
    tables: list[Node] = []
    for index, node in enumerate(nodes):
        if isinstance(node, Fields):
            tables.append(_translate_table(draft, node, index, namespace))
        else:
            draft.complain(node.location, "must be a mapping", ("tables", index))
            tables.append(node)
    if nodes:
        draft.put(("tables",), Items(tuple(tables), document.entries["tables"].location))


def _translate_table(
    draft: Translation, table: Fields, index: int, namespace: Node | None
) -> Fields:
    draft.warn_unknown(table, _TABLE_KEYS)
    entries: dict[str, Node] = {}
    namespace = given(table, "namespace") or namespace
    for ours, theirs in (("mirror", "mirror_table"), ("changelog", "changelog_table")):
        name = _full_name(draft, table, theirs, namespace, ("tables", index, ours))
        if name is not None:
            entries[ours] = name
    keys = given(table, "primary_keys")
    if keys is None or (isinstance(keys, Items) and not keys.items):
        location = table.location.child("primary_keys")
        draft.complain(location, "is required: the key columns", ("tables", index, "key"))
    else:
        entries["key"] = keys
    for ours, theirs, usual in (
        ("sequence", "sequence_column", "cdc_sequence_number"),
        ("operation", "operation_column", "cdc_operation"),
    ):
        entries[ours] = given(table, theirs) or default_scalar(table, ours, usual)
    entries["order"] = default_scalar(table, "order", "per_key")
    return Fields(entries, table.location)


def _full_name(
    draft: Translation, table: Fields, key: str, namespace: Node | None, path: tuple[str | int, ...]
) -> Scalar | None:
    node = given(table, key)
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        draft.complain(_location(table, key, node), "is required: name of the table", path)
        return None
    if isinstance(namespace, Scalar) and isinstance(namespace.value, str):
        return replaced(node, f"{namespace.value}.{node.value}")
    if "." not in node.value:
        draft.complain(_location(table, "namespace", namespace), "is required: a namespace", path)
        return None
    return node


def _location(parent: Fields, key: str, node: Node | None) -> Location:
    return node.location if node is not None else parent.location.child(key)


def _translate_pace(draft: Translation, document: Fields) -> None:
    draft.put_default(("merge", "max_rows"), BATCH_SIZE)
    draft.put(("merge", "max_rows"), given(document, "batch_size"))
    node = given(document, "merge_interval", "merge_interval_secs")
    if node is None:
        return
    interval = _interval(node)
    if interval is None or not timedelta(0) < interval <= LONGEST_DURATION:
        draft.complain(node.location, _INTERVAL_TEXT, ("merge", "interval"))
        return
    origin = node.origin if isinstance(node, Scalar) else node.location.where
    draft.put(("merge", "interval"), Scalar(format_duration(interval), node.location, origin))


def _interval(node: Node) -> timedelta | None:
    """Rust's three spellings: ``1h 30m``, seconds, and ``{secs, nanos}``."""
    if isinstance(node, Fields):
        secs = whole_number(node.entries.get("secs", node))
        nanos = whole_number(node.entries.get("nanos", node)) if "nanos" in node.entries else 0
        is_known = node.entries.keys() <= {"secs", "nanos"}
        if secs is None or nanos is None or not is_known or secs > LONGEST_DURATION.total_seconds():
            return None
        return timedelta(seconds=secs, milliseconds=nanos // 1_000_000)
    if not isinstance(node, Scalar) or isinstance(node.value, bool):
        return None
    seconds = whole_number(node)
    if seconds is None and isinstance(node.value, str):
        return _human_interval(node.value)
    number = seconds if seconds is not None else node.value
    if not isinstance(number, int | float) or not 0 <= number <= LONGEST_DURATION.total_seconds():
        return None
    return timedelta(milliseconds=int(number * 1000))


def _human_interval(text: str) -> timedelta | None:
    total, end = timedelta(0), 0
    for match in _HUMAN_PART.finditer(text):
        unit = next((u for u, names in _HUMAN_UNITS.items() if match[2].lower() in names), None)
        if match.start() != end or unit is None or int(match[1]) > LONGEST_DURATION // unit:
            return None
        total, end = total + int(match[1]) * unit, match.end()
    return total if end == len(text) and text else None


def _fill_from_environment(draft: Translation, environ: Mapping[str, str]) -> None:
    for name, path in _VARIABLES.items():
        if environ.get(name) and not _is_set(draft.root, path):
            draft.put_variable(path, name, environ[name])
    tracing = environ.get("ENABLE_TRACING", "").lower()
    if tracing:
        is_on = tracing not in {"0", "false", "no", "off"}
        draft.put_variable(("telemetry", "otlp", "spans"), "ENABLE_TRACING", str(is_on).lower())
    directives = environ.get("RUST_LOG", "")
    if directives:
        level = _log_level(directives)
        if level is None:
            draft.warn(Location("environment RUST_LOG", ""), "holds no level and is ignored")
        else:
            draft.put_variable(("telemetry", "log", "level"), "RUST_LOG", level)


def _is_set(root: Fields, path: tuple[str, ...]) -> bool:
    node: Node | None = root
    for key in path:
        node = node.entries.get(key) if isinstance(node, Fields) else None
    return node is not None


def _log_level(directives: str) -> str | None:
    """The level of a bare directive, else the most talkative one of ``target=level``."""
    parts = [part.strip().lower().rpartition("=") for part in directives.split(",")]
    bare = [level for _, equals, level in parts if not equals and level in _RUST_LEVELS]
    named = [level for _, equals, level in parts if equals and level in _RUST_LEVELS]
    if bare:
        return _RUST_LEVELS[bare[-1]]
    ordered = [level for level in _RUST_LEVELS if level in named]
    return _RUST_LEVELS[ordered[0]] if ordered else None
