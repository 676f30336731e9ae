"""The settings of a Config in the order of the document, and where each value came from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from frazil.config.loading.field_paths import ROOT, Spot, key_of, spot_below
from frazil.config.loading.nodes import Scalar, child_of, origin_of, spell_path
from frazil.config.models.section import Section
from frazil.config.models.tables import ColumnSettings, IndexOverrides, Table, WriteOverrides

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.config.loading.nodes import Fields, Node
    from frazil.config.models.document import Config
    from frazil.config.models.section import KeyPath

DEFAULT = "default"
# An override that is not given has no value; a written null is a value.
_SPARSE = (Table, ColumnSettings, WriteOverrides, IndexOverrides)

SettingValue = str | int | float | bool | None | timedelta | Enum | Path | SecretStr


@dataclass(frozen=True, slots=True)
class Setting:
    """One value, its path and what the models say about it; lists of plain values are one."""

    path: KeyPath
    value: SettingValue | tuple[SettingValue, ...]
    spot: Spot


def settings_of(config: Config) -> Iterator[Setting]:
    """Every setting that has a value or a default."""
    yield from _section(config, (), ROOT)


def trace_origins(config: Config, root: Fields) -> dict[str, str]:
    """The origin of every setting by its dotted path: a line, a variable, a file, or a default."""
    return {
        spell_path(setting.path): _origin(setting.path, root) for setting in settings_of(config)
    }


def _section(section: Section, path: KeyPath, spot: Spot) -> Iterator[Setting]:
    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(section, _SPARSE) and value is None:
            continue
        key = key_of(name, info)
        yield from _value(value, (*path, key), spot_below(spot, key) or spot)


def _value(value: object, path: KeyPath, spot: Spot) -> Iterator[Setting]:
    if isinstance(value, Section):
        yield from _section(value, path, spot)
    elif isinstance(value, dict):
        for key, below in value.items():
            yield from _value(below, (*path, key), spot_below(spot, key) or spot)
    elif isinstance(value, tuple) and any(isinstance(item, Section) for item in value):
        for index, item in enumerate(value):
            yield from _value(item, (*path, index), spot_below(spot, index) or spot)
    elif isinstance(value, tuple):
        plain = tuple(item for item in value if isinstance(item, SettingValue))
        yield Setting(path, plain, spot_below(spot, 0) or spot)
    elif isinstance(value, SettingValue):
        yield Setting(path, value, spot)


def _origin(path: KeyPath, root: Fields) -> str:
    node: Node = root
    for key in path:
        below = child_of(node, key)
        if below is None:
            # A column written as text instead of a mapping has its parts from that text.
            return node.origin if isinstance(node, Scalar) and node.value is not None else DEFAULT
        node = below
    return origin_of(node)
