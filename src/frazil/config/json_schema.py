"""The JSON Schema of the document, for editors and for the chart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic.json_schema import GenerateJsonSchema

from frazil.config.document import Config

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def config_schema() -> dict[str, object]:
    """The schema of what a person may write; secrets, durations and sizes are strings in it."""
    schema: JsonSchemaValue = Config.model_json_schema(
        mode="validation", schema_generator=GenerateJsonSchema
    )
    return {
        "$schema": DRAFT,
        "title": "frazil",
        **{k: v for k, v in schema.items() if k != "title"},
    }
