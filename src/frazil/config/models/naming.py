"""Names of tables, columns and pipelines, and the templates they are made from."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from frazil.config.models.values import Name, matching, refuse

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")

# Postgres cuts identifiers at 63 bytes, and the slot is called <pipeline>_frazil.
LONGEST_PIPELINE_NAME = 63 - len("_frazil")

PipelineName = Annotated[
    Name,
    matching(
        f"[a-z0-9_]{{1,{LONGEST_PIPELINE_NAME}}}",
        f"must be lowercase letters, digits and underscores, at most {LONGEST_PIPELINE_NAME} of "
        "them, because the replication slot is named after it",
    ),
    Field(pattern="^[a-z0-9_]+$", max_length=LONGEST_PIPELINE_NAME),
]
TableName = Annotated[
    Name,
    matching(
        r"[^\x00-\x20`\"./]+(?:\.[^\x00-\x20`\"./]+)+",
        "must be namespace.table",
    ),
]
# A prefix and the longest of our column names must fit into Postgres' 63 bytes.
ColumnPrefix = Annotated[
    Name,
    matching(
        "[a-z_][a-z0-9_]{0,31}",
        "must be lowercase letters, digits and underscores, at most 32 of them, and not start "
        "with a digit",
    ),
]


def _template(*allowed: str, needed: str | None = None) -> AfterValidator:
    names = ", ".join(f"{{{name}}}" for name in allowed)

    def check(text: str) -> str:
        literal = _PLACEHOLDER.sub("", text)
        if set(_PLACEHOLDER.findall(text)) - set(allowed) or "{" in literal or "}" in literal:
            sentence = f"may use only {names}"
            raise refuse(sentence)
        if needed is not None and f"{{{needed}}}" not in text:
            sentence = f"must use {{{needed}}}, or all tables would become one"
            raise refuse(sentence)
        return text

    return AfterValidator(check)


NamespaceTemplate = Annotated[Name, _template("schema", "pipeline")]
TableTemplate = Annotated[Name, _template("schema", "table", "pipeline", needed="table")]
PipelineTemplate = Annotated[Name, _template("pipeline")]

_PRIMITIVES = (
    "boolean", "int", "long", "float", "double", "string", "binary", "date", "timestamp",
    "timestamptz", "uuid",
)  # fmt: skip
_DECIMAL = re.compile(r"decimal\(\s*([0-9]{1,2})\s*,\s*([0-9]{1,2})\s*\)")
# Iceberg's own bound.
_MOST_DIGITS = 38


def _check_column_type(text: str) -> str:
    name = text.strip().lower()
    match = _DECIMAL.fullmatch(name)
    if match is not None and 1 <= int(match[1]) <= _MOST_DIGITS and int(match[2]) <= int(match[1]):
        return f"decimal({int(match[1])},{int(match[2])})"
    if name not in _PRIMITIVES:
        sentence = (
            f"must be one of {', '.join(_PRIMITIVES)} or decimal(p,s) with p up to {_MOST_DIGITS}"
        )
        raise refuse(sentence)
    return name


ColumnType = Annotated[Name, AfterValidator(_check_column_type)]
