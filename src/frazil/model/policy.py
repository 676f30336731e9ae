"""Choices of an operator or a table's owner, as the configuration spells them."""

from __future__ import annotations

import logging
from enum import StrEnum


class Deletes(StrEnum):
    """What a DELETE does to the mirror."""

    APPLY = "apply"
    IGNORE = "ignore"
    SOFT = "soft"


class OnDrop(StrEnum):
    """What happens to a column that the source dropped."""

    KEEP = "keep"
    DROP = "drop"


class Evolution(StrEnum):
    """Whether schema changes are followed."""

    PERMISSIVE = "permissive"
    STRICT = "strict"


class Order(StrEnum):
    """What the order of a changelog's rows promises."""

    APPEND = "append"
    PER_KEY = "per_key"


class OnUnrepresentable(StrEnum):
    """What becomes of a value the Iceberg type cannot hold."""

    FAIL = "fail"
    STRING = "string"
    NULL = "null"


class OnWiden(StrEnum):
    """What to do when a column's type was widened.

    Its values may have been rewritten without a row being sent.
    """

    VERIFY = "verify"
    ACCEPT = "accept"
    STOP = "stop"


class CompactionOrder(StrEnum):
    """In which order a compaction writes rows: as they are, or by the table's sort order."""

    KEEP = "keep"
    TABLE = "table"


class JobKind(StrEnum):
    """The kinds of maintenance, as ``frazil maintain --job`` names them."""

    COMPACT = "compact"
    EXPIRE = "expire"
    MANIFESTS = "manifests"
    RETENTION = "retention"
    ORPHANS = "orphans"


class Forever(StrEnum):
    """How long something is kept that is never removed."""

    FOREVER = "forever"


class LogFormat(StrEnum):
    """The form of log lines; ``auto`` is text on a terminal and JSON elsewhere."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """The severity from which on log lines are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """The same level as a number of the standard library."""
        return logging.getLevelNamesMapping()[self.name]


class CatalogKind(StrEnum):
    """The catalogs Iceberg's runtime can open for us."""

    SQL = "sql"
    REST = "rest"
    GLUE = "glue"
    HIVE = "hive"


class FirstSource(StrEnum):
    """Where changes of a first document come from."""

    POSTGRES = "postgres"
    KAFSCALE = "kafscale"
    BUFFER = "buffer"
    NONE = "none"


class DemoSource(StrEnum):
    """Where the changes of a demo come from."""

    POSTGRES = "postgres"
    KAFSCALE = "kafscale"
