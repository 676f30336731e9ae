"""The configuration: one YAML document as frozen models, loading, showing, and two foreign forms.

Read ``document.py`` for the whole, ``loading.py`` for how a file becomes it. The names below are
imported when they are first used, so that a command that needs none of them pays for none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil.config.buffer_source import BufferSource
    from frazil.config.catalog import (
        S3,
        Azure,
        Catalog,
        CatalogKind,
        Encryption,
        Gcs,
        Sigv4,
        Storage,
    )
    from frazil.config.dialects import Dialect
    from frazil.config.document import Config, Source
    from frazil.config.harmless import SPARK_SECRETS, is_harmless
    from frazil.config.json_schema import config_schema
    from frazil.config.kafscale_source import (
        ColumnsFrom,
        Discovery,
        Envelope,
        KafscaleSource,
        Lfs,
        LfsMode,
        OffsetsBackend,
        OnBadSegment,
        OnGap,
        Topic,
        TopicColumn,
        TopicColumnType,
        Validation,
    )
    from frazil.config.loading import DEFAULT_PATH, LoadedConfig, load_config, parse_config
    from frazil.config.observing import LogFormat, LogLevel, Telemetry
    from frazil.config.per_table import TableSettings, table_settings
    from frazil.config.postgres_source import OnSlotLost, PostgresSource
    from frazil.config.redaction import MASK, secret_values
    from frazil.config.running import DeadLetters, Ingest, Ledger, Merge, Retry, Spark
    from frazil.config.showing import ShownTree, ShownValue, native_document, show_document
    from frazil.config.starting import FirstAnswers, FirstSource, first_document
    from frazil.config.tables import (
        Changelog,
        ColumnSettings,
        Compression,
        Index,
        Mirror,
        Table,
        Write,
    )
    from frazil.model.policy import Deletes, Evolution, OnDrop, OnUnrepresentable, Order

_ROOMS = {
    "buffer_source": ("BufferSource",),
    "catalog": (
        "Azure",
        "Catalog",
        "CatalogKind",
        "Encryption",
        "Gcs",
        "S3",
        "Sigv4",
        "Storage",
    ),
    "dialects": ("Dialect",),
    "document": (
        "Config",
        "Source",
    ),
    "harmless": (
        "SPARK_SECRETS",
        "is_harmless",
    ),
    "json_schema": ("config_schema",),
    "kafscale_source": (
        "ColumnsFrom",
        "Discovery",
        "Envelope",
        "KafscaleSource",
        "Lfs",
        "LfsMode",
        "OffsetsBackend",
        "OnBadSegment",
        "OnGap",
        "Topic",
        "TopicColumn",
        "TopicColumnType",
        "Validation",
    ),
    "loading": (
        "DEFAULT_PATH",
        "LoadedConfig",
        "load_config",
        "parse_config",
    ),
    "observing": (
        "LogFormat",
        "LogLevel",
        "Telemetry",
    ),
    "per_table": (
        "TableSettings",
        "table_settings",
    ),
    "postgres_source": (
        "OnSlotLost",
        "PostgresSource",
    ),
    "redaction": (
        "MASK",
        "secret_values",
    ),
    "running": (
        "DeadLetters",
        "Ingest",
        "Ledger",
        "Merge",
        "Retry",
        "Spark",
    ),
    "showing": (
        "ShownTree",
        "ShownValue",
        "native_document",
        "show_document",
    ),
    "starting": (
        "FirstAnswers",
        "FirstSource",
        "first_document",
    ),
    "tables": (
        "Changelog",
        "ColumnSettings",
        "Compression",
        "Index",
        "Mirror",
        "Table",
        "Write",
    ),
}
# Choices that other rooms know as well, and that a document spells.
_POLICIES = ("Deletes", "Evolution", "OnDrop", "OnUnrepresentable", "Order")
_MODULE_OF = {name: f"{__name__}.{module}" for module, names in _ROOMS.items() for name in names}
_MODULE_OF |= dict.fromkeys(_POLICIES, "frazil.model.policy")


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "DEFAULT_PATH",
    "MASK",
    "S3",
    "SPARK_SECRETS",
    "Azure",
    "BufferSource",
    "Catalog",
    "CatalogKind",
    "Changelog",
    "ColumnSettings",
    "ColumnsFrom",
    "Compression",
    "Config",
    "DeadLetters",
    "Deletes",
    "Dialect",
    "Discovery",
    "Encryption",
    "Envelope",
    "Evolution",
    "FirstAnswers",
    "FirstSource",
    "Gcs",
    "Index",
    "Ingest",
    "KafscaleSource",
    "Ledger",
    "Lfs",
    "LfsMode",
    "LoadedConfig",
    "LogFormat",
    "LogLevel",
    "Merge",
    "Mirror",
    "OffsetsBackend",
    "OnBadSegment",
    "OnDrop",
    "OnGap",
    "OnSlotLost",
    "OnUnrepresentable",
    "Order",
    "PostgresSource",
    "Retry",
    "ShownTree",
    "ShownValue",
    "Sigv4",
    "Source",
    "Spark",
    "Storage",
    "Table",
    "TableSettings",
    "Telemetry",
    "Topic",
    "TopicColumn",
    "TopicColumnType",
    "Validation",
    "Write",
    "config_schema",
    "first_document",
    "is_harmless",
    "load_config",
    "native_document",
    "parse_config",
    "secret_values",
    "show_document",
    "table_settings",
]
