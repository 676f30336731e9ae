"""Complete the chart's values.schema.json with what the configuration models say of ``config``.

The chart's own keys are kept in that file by hand. Below ``config`` stands the document: helm then
refuses a mistaken key of ours before anything is installed. Documents of the merger and of
KafScale's processor have no ``pipeline`` and are left to frazil.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from frazil.config.showing import config_schema
from tools.bootstrap import ROOT

Schema = dict[str, Any]

FILE = ROOT / "deploy" / "chart" / "frazil" / "values.schema.json"
# What a variable may stand in for: its value is known in the pod only.
_VARIABLE: Schema = {"type": "string", "pattern": r"\$\{"}
# Texts for people are in the reference; helm would only ship them. What is required may come from
# a variable of the pod, such as FRAZIL__SOURCE__DSN.
_KEPT = frozenset(
    {"type", "properties", "additionalProperties", "items", "enum", "const", "pattern",
     "anyOf", "oneOf", "$ref", "minLength", "minItems", "minimum", "maximum", "propertyNames"}
)  # fmt: skip


def main() -> int:
    """Write the file."""
    FILE.write_text(completed(FILE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def completed(text: str) -> str:
    """The file with its generated parts as the models are now."""
    schema: Schema = json.loads(text)
    document = config_schema()
    parts: Any = document["$defs"]
    own: Schema = schema["properties"]["config"]
    described = _described(document)
    described["properties"] |= {key: {} for key in own["properties"]}
    own |= {"if": {"required": ["pipeline"]}, "then": {"$ref": "#/definitions/Document"}}
    schema["definitions"] = {
        "Document": described,
        **{name: _described(part) for name, part in sorted(parts.items())},
    }
    return json.dumps(schema, indent=2) + "\n"


def _described(schema: Schema) -> Schema:
    """A schema of the older draft that helm reads, in which a variable may stand for any value."""
    if "discriminator" in schema:
        return _by_kind(schema["discriminator"])
    result: Schema = {}
    for key in _KEPT & schema.keys():
        value = schema[key]
        if key == "properties":
            result[key] = {name: _described(each) for name, each in sorted(value.items())}
        elif key in {"anyOf", "oneOf"}:
            # A variable may fit several.
            result["anyOf"] = [_described(each) for each in value]
        elif isinstance(value, dict):
            result[key] = _described(value)
        elif key == "$ref":
            result[key] = value.replace("$defs", "definitions")
        else:
            result[key] = value
    result = dict(sorted(result.items()))
    is_free = "string" in result.get("type", ()) and not result.keys() & {
        "pattern",
        "enum",
        "const",
    }
    is_value = "type" in result and result["type"] not in ("object", "array", "null")
    return {"anyOf": [result, _VARIABLE]} if is_value and not is_free else result


def _by_kind(discriminator: Schema) -> Schema:
    """Judged by the kind that is named, so that the complaint is about that one."""
    name, kinds = discriminator["propertyName"], discriminator["mapping"]
    return {
        "type": "object",
        "properties": {name: {"enum": sorted(kinds)}},
        "allOf": [
            {
                "if": {"required": [name], "properties": {name: {"const": kind}}},
                "then": {"$ref": reference.replace("$defs", "definitions")},
            }
            for kind, reference in sorted(kinds.items())
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
