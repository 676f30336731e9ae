"""A tree to a Config, or to every mistake in it, each where it was written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import ValidationError

from frazil.config.loading.fault_report import report
from frazil.config.loading.nodes import Fields, Items, Mistake, Node, ScalarValue
from frazil.config.loading.settings import ROOT, Shape, Spot, spot_below
from frazil.config.models.document import Config
from frazil.config.models.section import DEPENDS, DEPTH, RULE
from frazil.config.models.values import DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from frazil.config.models.section import KeyPath

Plain = ScalarValue | list["Plain"] | dict[str, "Plain"]

# More than one can correct in one go; bounds the work on a hostile document.
MOST_MISTAKES = 100
# Faults of settings, rules of sections, rules of the document, and the same again for what a left
# out section uncovers.
_MOST_ROUNDS = 8
_KINDS_OF_SOURCE = frozenset({"postgres", "kafscale", "buffer"})

# Replaces a required section that is missing or wrong, so that the rules about the rest of the
# document are still checked.
_STAND_INS: dict[str, Plain] = {
    "pipeline": "unnamed",
    "catalog": {"kind": "rest", "uri": "http://localhost"},
}


def validate(
    root: Fields, directory: Path, *, known_wrong: Iterable[KeyPath] = ()
) -> tuple[Config | None, list[Mistake]]:
    """Build the Config; on faults, take them out and validate again, until no new one appears.

    About the paths in ``known_wrong`` a mistake was reported already.
    """
    search = _Search(root, set(known_wrong))
    for _ in range(_MOST_ROUNDS):
        try:
            config = Config.model_validate(search.data(), context={DIRECTORY: directory})
        except ValidationError as error:
            if not search.learn(error.errors(include_url=False)):
                break
        else:
            return (None if search.pruned else config), list(search.found.values())
    return None, list(search.found.values())


@dataclass(slots=True)
class _Search:
    """What is known to be wrong so far."""

    root: Fields
    pruned: set[KeyPath]
    found: dict[KeyPath, Mistake] = field(default_factory=dict)
    # Where list items were left out: the path of the list → the original indexes that remain.
    kept: dict[KeyPath, list[int]] = field(default_factory=dict)

    def data(self) -> dict[str, Plain]:
        """The tree as plain data, without what is known to be wrong."""
        self.kept.clear()
        stand_ins = {key: plain for key, plain in _STAND_INS.items() if (key,) in self.pruned}
        return {**stand_ins, **self._mapping(self.root, (), ROOT)}

    def learn(self, faults: list[ErrorDetails]) -> bool:
        """Report and prune; returns whether another pass may find more."""
        before = len(self.pruned)
        for fault in faults[:MOST_MISTAKES]:
            self._consider(fault)
        return len(self.pruned) > before and len(self.found) < MOST_MISTAKES

    def _mapping(self, node: Fields, path: KeyPath, spot: Spot | None) -> dict[str, Plain]:
        return {
            key: self._plain(below, (*path, key), spot_below(spot, key) if spot else None)
            for key, below in node.entries.items()
            if (*path, key) not in self.pruned
        }

    def _plain(self, node: Node, path: KeyPath, spot: Spot | None) -> Plain:
        if isinstance(node, Fields):
            return self._mapping(node, path, spot)
        if isinstance(node, Items):
            self.kept[path] = [i for i in range(len(node.items)) if (*path, i) not in self.pruned]
            inner = spot_below(spot, 0) if spot else None
            return [self._plain(node.items[i], (*path, i), inner) for i in self.kept[path]]
        if node.value is None and spot is not None and _means_defaults(spot):
            return {}
        return node.value

    def _consider(self, fault: ErrorDetails) -> None:
        path = self._original(_without_kind(fault["loc"]))
        section = self._section_of(fault, path)
        if path in self.pruned or self._is_premature(fault, path, section):
            # What was reported already makes this section unusable; check the rest without it.
            if section:
                self.pruned.add(section)
            return
        self.found[path] = report(fault, path, self.root)
        self.pruned.add(path)

    def _section_of(self, fault: ErrorDetails, path: KeyPath) -> KeyPath:
        depth = fault["ctx"][DEPTH] if fault["type"] == RULE else 1
        return path[: len(path) - depth]

    def _is_premature(self, fault: ErrorDetails, path: KeyPath, section: KeyPath) -> bool:
        """Whether a rule depends on a setting that is itself wrong."""
        if path and fault["type"] in {RULE, "too_short"} and self._touches(path):
            return True
        if fault["type"] != RULE:
            return False
        return any(self._touches((*section, *other)) for other in fault["ctx"][DEPENDS])

    def _touches(self, path: KeyPath) -> bool:
        return any(
            path[: len(wrong)] == wrong or wrong[: len(path)] == path for wrong in self.pruned
        )

    def _original(self, location: KeyPath) -> KeyPath:
        """The path in the tree for a location in the plain data."""
        path: KeyPath = ()
        for key in location:
            if isinstance(key, int) and key < len(self.kept.get(path, ())):
                path = (*path, self.kept[path][key])
            else:
                path = (*path, key)
        return path


def _without_kind(location: KeyPath) -> KeyPath:
    # Between `source` and its keys pydantic names the chosen kind.
    if location[:1] == ("source",) and location[1:2] and location[1] in _KINDS_OF_SOURCE:
        return ("source", *location[2:])
    return location


def _means_defaults(spot: Spot) -> bool:
    """Whether nothing means a section whose keys are all commented out."""
    return spot.shape in {Shape.SECTION, Shape.MAPPING} and not spot.is_optional
