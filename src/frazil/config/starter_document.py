"""The document that ``frazil init`` writes, commented with the models' descriptions; pure.

Keys that were answered are set. All others are commented out, each with its default, so
that taking the # away changes nothing until the value is changed, too.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from frazil.config.models.catalog import KEYS_OF_KIND
from frazil.config.models.document import BUFFER_CHANGELOG, BUFFER_COLUMN_PREFIX
from frazil.config.showing import config_schema
from frazil.model.policy import CatalogKind, FirstSource
from frazil.model.readers import VECTORS_FORMAT, Reader, format_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from frazil.config.models.section import KeyPath

Schema: TypeAlias = "dict[str, object]"

HEADER = """\
# {title}
# Lines that begin with a # show defaults: take it away from a key, and from those above it, to
# differ. `frazil config show` prints what the document means, `frazil check` tests what it
# names. ${{NAME}} is a variable of the environment: secrets are not written here.
"""
# Tables are written by it anyway.
USUAL_READERS = (Reader.SPARK,)
# Where comments begin, unless a line is longer.
_COMMENT_COLUMN = 36
_INDENT = "  "
# Text that means the same with and without quotes.
_PLAIN = re.compile(r"[A-Za-z0-9./][A-Za-z0-9_./:-]*|\$\{[A-Za-z_][A-Za-z0-9_]*(?::-)?\}")
_NOT_TEXT = re.compile(r"(?i)true|false|null|~|[-+.0-9]+(?:e[0-9]+)?|.*:")
# The stores whose settings are worth showing, by how a warehouse begins.
_STORES = {"s3": "s3", "s3a": "s3", "gs": "gcs", "abfs": "azure", "abfss": "azure"}
# Left to the reference, so that a first document stays short.
_RARELY_CHANGED: frozenset[KeyPath] = frozenset(
    ("maintenance", name) for name in ("compact", "manifests", "ledger", "orphans", "share")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstAnswers:
    """What a first document depends on; ``dsn_variable`` and ``tables`` are for databases."""

    pipeline: str
    source: FirstSource = FirstSource.POSTGRES
    catalog: CatalogKind = CatalogKind.SQL
    warehouse: str = "./lake"
    dsn_variable: str = "DATABASE_URL"
    tables: tuple[str, ...] = ("public.*",)
    readers: tuple[Reader, ...] = USUAL_READERS

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables that must be set, each with a value such as it takes."""
        dsn = {self.dsn_variable: "postgresql://user@localhost/database"}
        of_source = {
            FirstSource.POSTGRES: dsn,
            FirstSource.BUFFER: dsn,
            FirstSource.KAFSCALE: {
                "KAFSCALE_BUCKET": "kafscale-data",
                "ETCD_URL": "http://localhost:2379",
            },
        }
        of_catalog = {
            CatalogKind.REST: {"CATALOG_URI": "http://localhost:8181"},
            CatalogKind.HIVE: {"CATALOG_URI": "thrift://localhost:9083"},
        }
        return {**of_source.get(self.source, {}), **of_catalog.get(self.catalog, {})}


Given: TypeAlias = "Mapping[KeyPath, object]"

# Defaults that depend on the source.
_DEFAULTS_OF_SOURCE: Mapping[FirstSource, Given] = {
    FirstSource.BUFFER: {
        ("changelog", "column_prefix"): BUFFER_COLUMN_PREFIX,
        **{("changelog", key): name for key, name in BUFFER_CHANGELOG.items()},
    },
}


def first_document(answers: FirstAnswers) -> str:
    """The text of the document."""
    schema = config_schema()
    page = _Page(
        cast("dict[str, Schema]", schema["$defs"]),
        _given(answers),
        _unused(answers),
        _DEFAULTS_OF_SOURCE.get(answers.source, {}),
    )
    title = str(schema["description"]).split("\n", maxsplit=1)[0]
    blocks = []
    for key, entry in cast("dict[str, Schema]", schema["properties"]).items():
        lines = list(page.lines_of((key,), entry))
        if lines:
            blocks.append("\n".join(line.rstrip() for line in lines))
    return "\n\n".join([HEADER.format(title=title).rstrip(), *blocks]) + "\n"


@dataclass(frozen=True, slots=True)
class _Page:
    """Sections as lines; ``given`` has values by path, ``unused`` the keys that are left out.

    ``defaults`` go before those of the schema.
    """

    definitions: Mapping[str, Schema]
    given: Given
    unused: frozenset[KeyPath]
    defaults: Given

    def lines_of(self, path: KeyPath, entry: Schema) -> Iterator[str]:
        """A key with all that is below it."""
        if path in self.unused:
            return
        section = self._section(entry, path)
        is_active = any(each[: len(path)] == path for each in self.given)
        if section is None:
            yield from self._value(path, entry, is_active=is_active)
            return
        meaning = str(entry.get("description") or section.get("description", ""))
        yield _line(path, "", meaning.split("\n", maxsplit=1)[0], is_active=is_active)
        for key, below in cast("dict[str, Schema]", section["properties"]).items():
            yield from self.lines_of((*path, key), below)

    def _value(self, path: KeyPath, entry: Schema, *, is_active: bool) -> Iterator[str]:
        meaning = str(entry.get("description", ""))
        items = self._items(path)
        if items:
            yield _line(path, "", meaning, is_active=is_active)
            for item in items:
                yield from self._item(item, entry)
            return
        default = self.defaults.get(path, entry.get("default", {}))
        value = self.given.get(path, default)
        # A kind without alternatives needs no description.
        shown = "" if meaning == value else meaning
        yield _line(path, _yaml(value), shown, is_active=is_active)

    def _items(self, path: KeyPath) -> tuple[KeyPath, ...]:
        """The members of a list that are given key by key."""
        inside = [each[: len(path) + 1] for each in self.given if each[: len(path)] == path]
        return tuple(dict.fromkeys(each for each in inside if each != path))

    def _item(self, path: KeyPath, entry: Schema) -> Iterator[str]:
        """What differs only: an item has too many keys to show them all."""
        section = self._section(cast("Schema", entry["items"]), path)
        known = cast("dict[str, Schema]", section["properties"]) if section else {}
        bullet = f"{_INDENT * (len(path) - 1)}- "
        for each, value in self.given.items():
            if each[: len(path)] == path:
                key = str(each[-1])
                meaning = str(known[key].get("description", ""))
                yield _commented(f"{bullet}{key}: {_yaml(value)}", meaning)
                bullet = " " * len(bullet)

    def _section(self, entry: Schema, path: KeyPath) -> Schema | None:
        """What is below a key; None for a value."""
        if path == ("source",):
            kind = self.given.get((*path, "kind"))
            return None if kind is None else self.definitions[f"{str(kind).capitalize()}Section"]
        name = str(entry.get("$ref", "")).rpartition("/")[2]
        found = self.definitions.get(name, {})
        return found if "properties" in found else None


def _given(answers: FirstAnswers) -> dict[KeyPath, object]:
    given: dict[KeyPath, object] = {
        ("pipeline",): answers.pipeline,
        ("catalog", "kind"): answers.catalog.value,
    }
    match answers.catalog:
        case CatalogKind.SQL:
            given["catalog", "uri"] = "sqlite:///catalog.db"
        case CatalogKind.REST:
            given["catalog", "uri"] = "${CATALOG_URI}"
            given["catalog", "token"] = "${CATALOG_TOKEN:-}"
        case CatalogKind.HIVE:
            given["catalog", "uri"] = "${CATALOG_URI}"
        case CatalogKind.GLUE:
            pass
    given["catalog", "warehouse"] = answers.warehouse
    if format_for(answers.readers) != VECTORS_FORMAT:
        given["mirror", "format_version"] = format_for(answers.readers)
    return given | _given_of_source(answers)


def _given_of_source(answers: FirstAnswers) -> dict[KeyPath, object]:
    dsn = f"${{{answers.dsn_variable}}}"
    match answers.source:
        case FirstSource.POSTGRES:
            return {
                ("source", "kind"): "postgres",
                ("source", "dsn"): dsn,
                ("source", "tables"): list(answers.tables),
            }
        case FirstSource.BUFFER:
            return {("source", "kind"): "buffer", ("source", "dsn"): dsn}
        case FirstSource.KAFSCALE:
            return {
                ("source", "kind"): "kafscale",
                ("source", "bucket"): "${KAFSCALE_BUCKET}",
                ("source", "etcd", "endpoints"): ["${ETCD_URL}"],
                ("source", "topics", 0, "topic"): "orders",
                ("source", "topics", 0, "table"): "prod.orders",
            }
        case FirstSource.NONE:
            return {
                ("tables", 0, "mirror"): "public.users",
                ("tables", 0, "changelog"): "public.users_changelog",
                ("tables", 0, "key"): ["id"],
            }


def _unused(answers: FirstAnswers) -> frozenset[KeyPath]:
    """Keys that mean nothing in this document."""
    others = {("catalog", key) for key, kind in KEYS_OF_KIND.items() if kind is not answers.catalog}
    if answers.catalog is CatalogKind.GLUE:
        others.add(("catalog", "uri"))
    stores = set(_STORES.values()) - {_STORES.get(answers.warehouse.partition("://")[0])}
    if answers.source is FirstSource.KAFSCALE:
        # Where its segments are.
        stores -= {"s3"}
    unused: set[KeyPath] = {*others, *(("storage", name) for name in stores)}
    if stores == set(_STORES.values()):
        unused.add(("storage",))
    if answers.source is FirstSource.NONE:
        unused |= {("source",), ("ingest",)}
    return frozenset(unused | _RARELY_CHANGED)


def _line(path: KeyPath, value: str, meaning: str, *, is_active: bool) -> str:
    mark = "" if is_active else "# "
    text = f"{_INDENT * (len(path) - 1)}{mark}{path[-1]}:"
    return _commented(f"{text} {value}" if value else text, meaning)


def _commented(text: str, meaning: str) -> str:
    return f"{text.ljust(_COMMENT_COLUMN)}  # {meaning}" if meaning else text


def _yaml(value: object) -> str:
    """A value on one line; JSON is YAML, and plain text reads better."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and not _NOT_TEXT.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)
