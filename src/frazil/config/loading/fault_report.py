"""Validation errors of the models as messages for the author of the document."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from frazil.config.loading.nodes import (
    Fields,
    Location,
    Mistake,
    Node,
    Scalar,
    child_of,
    describe_shape,
)
from frazil.config.loading.overrides import unknown_key_sentence
from frazil.config.loading.settings import Shape, Spot, key_of, spot_at
from frazil.config.models.section import RULE
from frazil.config.models.values import suggestion

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from frazil.config.models.section import KeyPath

_LONGEST_REPEATED = 60
_SOURCES = ("postgres", "kafscale", "buffer")
_SHAPES = {
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "tuple_type": "must be a list",
    "too_short": "must not be empty",
}


def report(fault: ErrorDetails, path: KeyPath, root: Fields) -> Mistake:
    """One fault as a mistake at its location in the document."""
    kind = fault["type"]
    if kind.startswith("union_tag"):
        return _report_kind_of_source(root)
    location, node = locate(root, path)
    if kind == "missing":
        return Mistake(location, f"is required: {_description(path)}")
    if kind == "extra_forbidden":
        sentence = unknown_key_sentence(str(path[-1]), _parent_spot(path, root))
        return Mistake(location, sentence, is_about_key=True)
    sentence = _SHAPES.get(kind, fault["msg"])
    found = "" if kind == RULE or node is None else _found(node, spot_at(path))
    return Mistake(location, f"{sentence}{found}")


def locate(root: Fields, path: KeyPath) -> tuple[Location, Node | None]:
    """The location to name for this path, and the node there, if there is one."""
    node: Node = root
    location = root.location
    for depth, key in enumerate(path):
        below = child_of(node, key)
        if below is None:
            if isinstance(node, Scalar):
                return location, node
            for missing in path[depth:]:
                location = location.child(missing)
            return location, None
        node, location = below, below.location
    return location, node


def _report_kind_of_source(root: Fields) -> Mistake:
    location, node = locate(root, ("source", "kind"))
    kinds = ", ".join(_SOURCES)
    if node is None:
        return Mistake(location, f"is required: one of {kinds}")
    hint = ""
    if isinstance(node, Scalar) and node.source is None and isinstance(node.value, str):
        hint = suggestion(node.value, _SOURCES)
    return Mistake(
        location, f"must be one of {kinds}{hint}{_found(node, spot_at(('source', 'kind')))}"
    )


def _parent_spot(path: KeyPath, root: Fields) -> Spot:
    spot = spot_at(path[:-1]) or Spot(Shape.SCALAR)
    _, kind = locate(root, (*path[:-1], "kind"))
    if path[:-1] != ("source",) or not isinstance(kind, Scalar):
        return spot
    sections = tuple(
        section
        for section in spot.sections
        if get_args(section.model_fields["kind"].annotation) == (kind.value,)
    )
    return Spot(spot.shape, sections)


def _description(path: KeyPath) -> str:
    spot = spot_at(path[:-1])
    for section in spot.sections if spot is not None else ():
        for name, info in section.model_fields.items():
            if key_of(name, info) == path[-1] and info.description:
                return info.description[0].lower() + info.description[1:].rstrip(".")
    return "it has no default"


def _found(node: Node, spot: Spot | None) -> str:
    """The value found, as far as it may be repeated."""
    if not isinstance(node, Scalar) or node.value is None:
        return f"; found {describe_shape(node)}"
    if spot is None or not spot.may_be_repeated:
        return "" if isinstance(node.value, str) else f"; found {describe_shape(node)}"
    if node.source is not None:
        is_here = node.source == node.location.where
        return "" if is_here else f"; found the value of {node.source}"
    text = str(node.value).lower() if isinstance(node.value, bool) else str(node.value)
    if len(text) > _LONGEST_REPEATED or not text.isprintable():
        return f"; found {len(text)} characters of text"
    # Quotes are worth showing: they are often the reason.
    return f"; found `{text}`" if node.is_plain else f'; found `"{text}"`'
