"""The settings of the document: which one a path leads to, their values, and where those came from.

What a path leads to says which sections may follow, and whether the value is secret.
"""

from __future__ import annotations

import types
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum, auto
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from pydantic import SecretStr

from frazil.config.loading.nodes import Scalar, child_of, origin_of, spell_path
from frazil.config.models.document import Config
from frazil.config.models.maintenance import MaintenanceOverride
from frazil.config.models.section import Section
from frazil.config.models.tables import ColumnSettings, IndexOverrides, Table, WriteOverrides
from frazil.config.models.values import SettingTrait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

    from frazil.config.loading.nodes import Fields, Node
    from frazil.config.models.section import KeyPath

DEFAULT = "default"
# An override that is not given has no value; a written null is a value.
_SPARSE = (Table, ColumnSettings, WriteOverrides, IndexOverrides, MaintenanceOverride)

SettingValue = str | int | float | bool | None | timedelta | Enum | Path | SecretStr


class Shape(Enum):
    """What is allowed at a path."""

    SECTION = auto()
    MAPPING = auto()
    LIST = auto()
    SCALAR = auto()


@dataclass(frozen=True, slots=True)
class Spot:
    """One setting of the document, as the models declare it."""

    shape: Shape
    sections: tuple[type[Section], ...] = ()
    inner: Any = None
    is_optional: bool = False
    is_secret: bool = False
    markers: frozenset[SettingTrait] = frozenset()

    @property
    def may_be_repeated(self) -> bool:
        """Whether a message may contain the value."""
        return not self.is_secret and SettingTrait.GUARDED not in self.markers

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that may follow, in the order of the models."""
        found = [
            key_of(name, info)
            for section in self.sections
            for name, info in section.model_fields.items()
        ]
        return tuple(dict.fromkeys(found))


ROOT = Spot(Shape.SECTION, (Config,))


def key_of(name: str, info: FieldInfo) -> str:
    """How a field is called in the document."""
    return info.alias or name


def spot_below(spot: Spot, key: str | int) -> Spot | None:
    """The setting below another one, or None when the models know no such key."""
    if spot.shape is Shape.SECTION:
        return _spots_of(spot.sections).get(str(key))
    if spot.shape is Shape.MAPPING or (spot.shape is Shape.LIST and isinstance(key, int)):
        below = _spot(spot.inner)
        return replace(below, markers=below.markers | spot.markers)
    return None


def spot_at(path: KeyPath) -> Spot | None:
    """The setting at the end of a path."""
    spot: Spot | None = ROOT
    for key in path:
        spot = spot_below(spot, key) if spot is not None else None
    return spot


# The same few sections are asked about for every setting of every document.
@cache
def _spots_of(sections: tuple[type[Section], ...]) -> dict[str, Spot]:
    # Several kinds of source may have a key in common; a secret in one is a secret in all.
    found: defaultdict[str, list[Spot]] = defaultdict(list)
    for section in sections:
        for name, info in section.model_fields.items():
            described = (
                Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
            )
            found[key_of(name, info)].append(_spot(described))
    return {key: _joined(spots) for key, spots in found.items()}


def _joined(found: list[Spot]) -> Spot:
    return Spot(
        found[0].shape,
        tuple(section for each in found for section in each.sections),
        found[0].inner,
        all(each.is_optional for each in found),
        any(each.is_secret for each in found),
        frozenset(marker for each in found for marker in each.markers),
    )


def _spot(annotation: Any) -> Spot:  # noqa: ANN401 - annotations have no better type
    kinds = tuple(_kinds(annotation))
    markers = frozenset(_markers(annotation))
    is_optional = type(None) in kinds
    sections = tuple(k for k in kinds if isinstance(k, type) and issubclass(k, Section))
    if sections:
        return Spot(Shape.SECTION, sections, None, is_optional, markers=markers)
    for kind in kinds:
        if get_origin(kind) is dict:
            return Spot(Shape.MAPPING, (), get_args(kind)[1], is_optional, markers=markers)
        if get_origin(kind) is tuple:
            return Spot(Shape.LIST, (), get_args(kind)[0], is_optional, markers=markers)
    return Spot(Shape.SCALAR, (), None, is_optional, SecretStr in kinds, markers)


def _kinds(annotation: Any) -> Iterator[Any]:  # noqa: ANN401 - annotations have no better type
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif origin in {Union, types.UnionType}:
        for part in get_args(annotation):
            yield from _kinds(part)
    else:
        yield annotation


def _markers(annotation: Any) -> Iterator[SettingTrait]:  # noqa: ANN401 - annotations have no better type
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *metadata = get_args(annotation)
        yield from (entry for entry in metadata if isinstance(entry, SettingTrait))
        yield from _markers(inner)
    elif origin in {Union, types.UnionType, tuple, dict}:
        for part in get_args(annotation):
            yield from _markers(part)


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
