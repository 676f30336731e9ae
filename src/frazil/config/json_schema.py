"""The JSON Schema of the document, for editors and for the chart."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema

from frazil.config.models.document import Config
from frazil.config.models.values import SIZE_SCHEMA, format_duration, format_size

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def config_schema() -> dict[str, object]:
    """The schema of the document as written; secrets, durations and sizes are strings in it."""
    schema: JsonSchemaValue = Config.model_json_schema(
        mode="validation", schema_generator=_AsWritten
    )
    for section in (schema, *schema["$defs"].values()):
        for setting in section.get("properties", {}).values():
            if setting.get("anyOf") == SIZE_SCHEMA["anyOf"] and setting.get("default"):
                setting["default"] = format_size(setting["default"])
    return {"$schema": DRAFT, **schema, "title": "frazil"}


class _AsWritten(GenerateJsonSchema):
    """Shows defaults the way they would be written."""

    def encode_default(self, dft: Any) -> Any:  # noqa: ANN401 - pydantic's own signature
        return format_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)
