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

from frazil.config.foreign.processor_mappings import off_if_false, translate_mappings
from frazil.config.foreign.translation import (
    Draft,
    Translation,
    given,
    lowered,
    pipeline_name,
    replaced,
    whole_number,
)
from frazil.config.loading.nodes import Fields, Items, Node, Scalar

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def translate_processor(document: Fields, environ: Mapping[str, str]) -> Translation:
    """The processor's document in our form, with its own variables filled in."""
    draft = Draft(Fields({}, document.location))
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
    translate_mappings(draft, document, environ)
    draft.put_default(("telemetry", "listen"), METRICS_LISTEN)
    if environ.get(METRICS_VARIABLE):
        draft.put_variable(("telemetry", "listen"), METRICS_VARIABLE, environ[METRICS_VARIABLE])
    draft.put_default(("telemetry", "pages"), value=False)
    return draft.finish()


def _translate_name(draft: Draft, sections: Mapping[str, Fields]) -> None:
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


def _translate_store(draft: Draft, store: Fields) -> None:
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


def _translate_catalog(draft: Draft, iceberg: Fields) -> None:
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


def _translate_sign_in(draft: Draft, catalog: Fields) -> None:
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


def _translate_coordination(draft: Draft, sections: Mapping[str, Fields]) -> None:
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


def _translate_validation(draft: Draft, schema: Fields) -> None:
    registry = draft.section(schema, "registry", ("source", "registry"))
    draft.warn_unknown(registry, _REGISTRY_KEYS)
    mode = off_if_false(lowered(given(schema, "mode")))
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
    draft: Draft, path: tuple[str, ...], section: Fields, key: str, *, usual: int | None = None
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
