"""Which program's document this is, recognised by its shape."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from frazil.config.foreign.merger_document import translate_merger
from frazil.config.foreign.processor_document import translate_processor
from frazil.config.foreign.translation import Translation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frazil.config.loading.nodes import Fields

_OURS_ONLY = frozenset({"pipeline", "catalog", "source"})
_PROCESSORS_ONLY = frozenset({"s3", "mappings", "offsets", "discovery", "etcd", "processor"})


class Dialect(StrEnum):
    """The documents we read."""

    NATIVE = "native"
    MERGER = "merger"
    PROCESSOR = "processor"


def recognise(document: Fields) -> Dialect:
    """The dialect a document is written in; in doubt it is ours."""
    keys = document.entries.keys()
    if keys & _OURS_ONLY:
        return Dialect.NATIVE
    if "project_ref" in keys or {"iceberg", "tables"} <= keys:
        return Dialect.MERGER
    return Dialect.PROCESSOR if keys & _PROCESSORS_ONLY else Dialect.NATIVE


def translate(document: Fields, dialect: Dialect, environ: Mapping[str, str]) -> Translation:
    """The document in our form; ours needs no translation."""
    if dialect is Dialect.MERGER:
        return translate_merger(document, environ)
    if dialect is Dialect.PROCESSOR:
        return translate_processor(document, environ)
    return Translation(document)
