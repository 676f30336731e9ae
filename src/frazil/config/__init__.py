"""The configuration: one YAML document as frozen models, loading, showing, and two foreign forms.

Read ``models/document.py`` for what it contains, ``loader.py`` for how a file becomes it. The names
below are imported when they are first used, so that a command that needs none of them pays for
none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil.config.foreign.dialects import Dialect
    from frazil.config.harmless import SPARK_SECRETS, is_harmless
    from frazil.config.json_schema import config_schema
    from frazil.config.loader import DEFAULT_PATH, LoadedConfig, load_config, parse_config
    from frazil.config.models.buffer_source import BufferSection
    from frazil.config.models.catalog import (
        S3,
        Azure,
        Catalog,
        CatalogKind,
        Encryption,
        Gcs,
        Sigv4,
        Storage,
    )
    from frazil.config.models.document import Config, Source
    from frazil.config.models.kafscale_source import (
        ColumnsFrom,
        Discovery,
        Envelope,
        KafscaleSection,
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
    from frazil.config.models.observability import Telemetry
    from frazil.config.models.per_table import TableSettings, table_settings
    from frazil.config.models.postgres_source import OnSlotLost, PostgresSection
    from frazil.config.models.running import DeadLetters, Ingest, LedgerSection, Merge, Retry, Spark
    from frazil.config.models.tables import (
        Changelog,
        ColumnSettings,
        Compression,
        Index,
        Mirror,
        Table,
        Write,
    )
    from frazil.config.redaction import MASK, secret_values
    from frazil.config.showing import ShownTree, ShownValue, native_document, show_document
    from frazil.config.starter_document import FirstAnswers, FirstSource, first_document
    from frazil.model.policy import Deletes, Evolution, OnDrop, OnUnrepresentable, Order

_NAMES_IN = {
    "models.buffer_source": "BufferSection",
    "models.catalog": "Azure Catalog CatalogKind Encryption Gcs S3 Sigv4 Storage",
    "foreign.dialects": "Dialect",
    "models.document": "Config Source",
    "harmless": "SPARK_SECRETS is_harmless",
    "json_schema": "config_schema",
    "models.kafscale_source": (
        "ColumnsFrom Discovery Envelope KafscaleSection Lfs LfsMode OffsetsBackend "
        "OnBadSegment OnGap Topic TopicColumn TopicColumnType Validation"
    ),
    "loader": "DEFAULT_PATH LoadedConfig load_config parse_config",
    "models.observability": "Telemetry",
    "models.per_table": "TableSettings table_settings",
    "models.postgres_source": "OnSlotLost PostgresSection",
    "redaction": "MASK secret_values",
    "models.running": "DeadLetters Ingest LedgerSection Merge Retry Spark",
    "showing": "ShownTree ShownValue native_document show_document",
    "starter_document": "FirstAnswers FirstSource first_document",
    "models.tables": "Changelog ColumnSettings Compression Index Mirror Table Write",
}
# Choices that other packages know as well, and that a document spells.
_POLICIES = ("Deletes", "Evolution", "OnDrop", "OnUnrepresentable", "Order")
_MODULE_OF = {
    name: f"{__name__}.{module}" for module, names in _NAMES_IN.items() for name in names.split()
}
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
    "BufferSection",
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
    "KafscaleSection",
    "LedgerSection",
    "Lfs",
    "LfsMode",
    "LoadedConfig",
    "Merge",
    "Mirror",
    "OffsetsBackend",
    "OnBadSegment",
    "OnDrop",
    "OnGap",
    "OnSlotLost",
    "OnUnrepresentable",
    "Order",
    "PostgresSection",
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
