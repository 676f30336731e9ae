"""``FRAZIL__SECTION__KEY``: one layer of settings over the document, from the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.config.loading.nodes import Fields, Items, Location, Mistake, Node, Scalar, spell_path
from frazil.config.loading.settings import ROOT, Shape, Spot, spot_below
from frazil.config.loading.text_file import LARGEST_DOCUMENT
from frazil.config.loading.yaml_tree import RefusedYamlError, parse_yaml
from frazil.config.models.values import Substituted, suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "FRAZIL__"
# As deep as the document goes; also keeps a hostile name cheap.
_MOST_PARTS = 8


@dataclass(frozen=True, slots=True)
class _Override:
    name: str
    path: tuple[str, ...]
    spot: Spot


def overlay(root: Fields, environ: Mapping[str, str]) -> tuple[Fields, list[Mistake]]:
    """The document with every override; an override of a section replaces it entirely."""
    mistakes: list[Mistake] = []
    found: dict[tuple[str, ...], _Override] = {}
    for name in sorted(environ):
        if not name.upper().startswith(PREFIX):
            continue
        override = _locate(name, mistakes)
        if override is None:
            continue
        if override.path in found:
            sentence = f"is also given by {found[override.path].name}; keep one of the two"
            mistakes.append(Mistake(_location(name, override.path), sentence))
        found[override.path] = override
    # Shorter paths first, so that a single key wins over its section.
    for path in sorted(found, key=lambda path: (len(path), path)):
        node = _read(found[path], environ[found[path].name], mistakes)
        if node is not None:
            root = grafted(root, path, node)
    return root, mistakes


def grafted(root: Fields, path: tuple[str, ...], node: Node) -> Fields:
    """A tree like ``root`` with ``node`` at ``path``; what is in the way is replaced."""
    key, *rest = path
    entries = dict(root.entries)
    if rest:
        below = entries.get(key)
        if not isinstance(below, Fields):
            below = Fields({}, Location(node.location.where, key, node.location.line))
        entries[key] = grafted(below, tuple(rest), node)
    else:
        entries[key] = node
    return Fields(entries, root.location)


def _location(name: str, path: tuple[str, ...]) -> Location:
    return Location(f"environment {name}", spell_path(path))


def _locate(name: str, mistakes: list[Mistake]) -> _Override | None:
    spot = ROOT
    path: tuple[str, ...] = ()
    for part in name[len(PREFIX) :].split("__", _MOST_PARTS):
        if spot.shape is Shape.LIST:
            variable = f"{PREFIX}{'__'.join(path).upper()}"
            mistakes.append(
                Mistake(_location(name, path), f"is a list; give all of it as {variable}")
            )
            return None
        # Names in the environment are usually in capitals; free mappings keep theirs.
        key = part if spot.shape is Shape.MAPPING else part.lower()
        below = spot_below(spot, key)
        if below is None:
            sentence = unknown_key_sentence(key, spot)
            mistakes.append(Mistake(_location(name, (*path, key)), sentence))
            return None
        spot, path = below, (*path, key)
    return _Override(name, path, spot)


def unknown_key_sentence(key: str, spot: Spot) -> str:
    """That a key is not known here, which one may be meant, and which ones there are."""
    if not spot.keys:
        return "is not a known key: no key is allowed here"
    return unknown_name_sentence(key, spot.keys)


def unknown_name_sentence(key: str, known: tuple[str, ...]) -> str:
    """The same for keys that no model of ours declares."""
    return f"is not a known key{suggestion(key, known)}; known here: {', '.join(known)}"


def _read(override: _Override, text: str, mistakes: list[Mistake]) -> Node | None:
    location = _location(override.name, override.path)
    if override.spot.is_secret:
        # A password is taken literally.
        value = Substituted(text) if text else None
        return Scalar(value, location, location.where, location.where)
    if len(text) > LARGEST_DOCUMENT:
        mistakes.append(Mistake(location, "is too large"))
        return None
    try:
        node, faults = parse_yaml(text, label=location.where, path=location.path, numbered=False)
    except RefusedYamlError as error:
        mistakes.extend(error.mistakes)
        return None
    mistakes.extend(faults)
    if override.spot.shape is Shape.SCALAR and isinstance(node, Scalar) and node.value is not None:
        # 0123 may be a number or a name; the type of the setting decides.
        value = Substituted(node.value if isinstance(node.value, str) else text.strip())
        return Scalar(value, location, location.where, location.where)
    return _from_environment(node)


def _from_environment(node: Node) -> Node:
    if isinstance(node, Fields):
        entries = {key: _from_environment(below) for key, below in node.entries.items()}
        return Fields(entries, node.location)
    if isinstance(node, Items):
        return Items(tuple(map(_from_environment, node.items)), node.location)
    return Scalar(node.value, node.location, node.origin, node.location.where)
