"""Which setting a path leads to: its sections, whether it is secret, what may follow."""

from __future__ import annotations

import types
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from pydantic import SecretStr

from frazil.config.models.document import Config
from frazil.config.models.section import Section
from frazil.config.models.values import SettingTrait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

    from frazil.config.models.section import KeyPath


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
        return _field_spot(spot, key)
    if spot.shape is Shape.MAPPING or (spot.shape is Shape.LIST and isinstance(key, int)):
        below = _spot(spot.inner)
        return Spot(
            below.shape,
            below.sections,
            below.inner,
            below.is_optional,
            below.is_secret,
            below.markers | spot.markers,
        )
    return None


def spot_at(path: KeyPath) -> Spot | None:
    """The setting at the end of a path."""
    spot: Spot | None = ROOT
    for key in path:
        spot = spot_below(spot, key) if spot is not None else None
    return spot


def _field_spot(spot: Spot, key: str | int) -> Spot | None:
    # Several kinds of source may have a key in common; a secret in one is a secret in all.
    found = [
        _spot(Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation)
        for section in spot.sections
        for name, info in section.model_fields.items()
        if key_of(name, info) == key
    ]
    if not found:
        return None
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
