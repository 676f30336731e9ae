"""What ``config show`` and ``config schema`` print.

The resolved document in our own form and without secrets, and its JSON Schema for editors and for
the chart.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr
from pydantic.json_schema import GenerateJsonSchema

from frazil.config.loading.nodes import spell_path
from frazil.config.loading.settings import Setting, SettingValue, settings_of
from frazil.config.models.document import Config
from frazil.config.models.values import (
    PERCENT_SCHEMA,
    SIZE_SCHEMA,
    SettingTrait,
    format_duration,
    format_percent,
    format_size,
)
from frazil.config.redaction import MASK, is_masked_whole, mask_uri

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue

    from frazil.config.loader import LoadedConfig
    from frazil.config.models.section import KeyPath

Shown = str | int | float | bool | None
ShownTree = Shown | list["ShownTree"] | dict[str, "ShownTree"]

DRAFT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True)
class ShownValue:
    """One line of ``frazil config show``."""

    path: str
    value: str
    origin: str


def show_document(loaded: LoadedConfig) -> tuple[ShownValue, ...]:
    """Every setting in the order of the document, masked, with its origin."""
    lines = []
    for setting in settings_of(loaded.config):
        path = spell_path(setting.path)
        lines.append(ShownValue(path, _text(_masked(setting)), loaded.origins[path]))
    return tuple(lines)


def native_document(loaded: LoadedConfig) -> dict[str, ShownTree]:
    """The nested document in our form, masked; what is not secret reads back as it is."""
    root: dict[str, ShownTree] = {}
    for setting in settings_of(loaded.config):
        _place_value(root, setting.path, _masked(setting))
    return root


def _masked(setting: Setting) -> ShownTree:
    if isinstance(setting.value, tuple):
        return [_plain(setting, item) for item in setting.value]
    return _plain(setting, setting.value)


def _plain(setting: Setting, value: SettingValue) -> Shown:
    if isinstance(value, SecretStr) or (value is not None and is_masked_whole(setting)):
        return MASK
    match value:
        case timedelta():
            shown: Shown = format_duration(value)
        case Enum():
            shown = str(value.value)
        case Path():
            shown = str(value)
        case str() if SettingTrait.GUARDED in setting.spot.markers:
            shown = mask_uri(value)
        case int() if value and SettingTrait.SIZE in setting.spot.markers:
            shown = format_size(value)
        case int() if SettingTrait.PERCENT in setting.spot.markers:
            shown = format_percent(value)
        case _:
            shown = value
    return shown


def _text(value: ShownTree) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _place_value(root: dict[str, ShownTree], path: KeyPath, value: ShownTree) -> None:
    node: ShownTree = root
    for key, following in pairwise(path):
        node = _step(node, key, [] if isinstance(following, int) else {})
    if isinstance(node, dict):
        node[str(path[-1])] = value


def _step(node: ShownTree, key: str | int, new: ShownTree) -> ShownTree:
    if isinstance(node, dict):
        return node.setdefault(str(key), new)
    if isinstance(node, list) and isinstance(key, int):
        if key == len(node):
            node.append(new)
        return node[key]
    return new


def config_schema() -> dict[str, object]:
    """The schema of the document as written; secrets, durations and sizes are strings in it."""
    schema: JsonSchemaValue = Config.model_json_schema(
        mode="validation", schema_generator=_AsWritten
    )
    for section in (schema, *schema["$defs"].values()):
        for setting in section.get("properties", {}).values():
            if setting.get("anyOf") == SIZE_SCHEMA["anyOf"] and setting.get("default"):
                setting["default"] = format_size(setting["default"])
            if setting.get("pattern") == PERCENT_SCHEMA["pattern"] and setting.get("default"):
                setting["default"] = format_percent(setting["default"])
    return {"$schema": DRAFT, **schema, "title": "frazil"}


class _AsWritten(GenerateJsonSchema):
    """Shows defaults the way they would be written."""

    def encode_default(self, dft: Any) -> Any:  # noqa: ANN401 - pydantic's own signature
        return format_duration(dft) if isinstance(dft, timedelta) else super().encode_default(dft)
