"""The tools for reading a foreign document into our tree without losing its lines."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from frazil.config.loading.nodes import (
    Fields,
    Items,
    Location,
    Mistake,
    Node,
    Scalar,
    ScalarValue,
    spell_path,
)
from frazil.config.loading.overrides import grafted
from frazil.config.loading.settings import DEFAULT
from frazil.config.models.naming import LONGEST_PIPELINE_NAME
from frazil.config.models.values import Substituted, suggestion

if TYPE_CHECKING:
    from frazil.config.models.section import KeyPath

_NOT_IN_NAMES = re.compile("[^a-z0-9_]+")
_WHOLE_NUMBER = re.compile("[0-9]{1,15}")


@dataclass(slots=True)
class Translation:
    """A document in our form, as far as it has come.

    ``wrong`` are the paths of ours that the mistakes are about.
    """

    root: Fields
    mistakes: list[Mistake] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    wrong: set[KeyPath] = field(default_factory=set)

    def put(self, path: tuple[str, ...], node: Node | None) -> None:
        """Put a node of the foreign document into ours; None changes nothing."""
        if node is not None:
            self.root = grafted(self.root, path, node)

    def put_default(self, path: tuple[str, ...], value: ScalarValue) -> None:
        """Put a default that the foreign document has and ours has not."""
        self.put(path, default_scalar(self.root, spell_path(path), value))

    def put_variable(self, path: tuple[str, ...], name: str, value: str) -> None:
        """Put the value of an environment variable that the foreign program reads."""
        self.put(path, variable_scalar(name, spell_path(path), value))

    def complain(self, location: Location, sentence: str, *wrong: KeyPath) -> None:
        """Report a mistake and the paths of ours that need no further check."""
        self.mistakes.append(Mistake(location, sentence))
        self.wrong.update(wrong)

    def warn(self, location: Location, sentence: str) -> None:
        """Add a warning, which stops nothing."""
        self.warnings.append(str(Mistake(location, sentence)))

    def section(self, parent: Fields, key: str, *wrong: KeyPath) -> Fields:
        """The mapping below a key, empty when it is left out or null."""
        node = parent.entries.get(key)
        if isinstance(node, Fields):
            return node
        location = node.location if node is not None else parent.location.child(key)
        if node is not None and not (isinstance(node, Scalar) and node.value is None):
            self.complain(location, "must be a mapping", *wrong)
        return Fields({}, location)

    def listed(self, parent: Fields, key: str, *wrong: KeyPath) -> tuple[Node, ...]:
        """The items of the list below a key, none when it is left out or null."""
        node = parent.entries.get(key)
        if isinstance(node, Items):
            return node.items
        if node is not None and not (isinstance(node, Scalar) and node.value is None):
            self.complain(node.location, "must be a list", *wrong)
        return ()

    def warn_unknown(self, section: Fields, known: frozenset[str]) -> None:
        """Say which keys are ignored."""
        for key, node in section.entries.items():
            if key not in known:
                hint = suggestion(key, sorted(known))
                self.warn(node.location, f"is not a known key{hint} and is ignored")


def given(section: Fields, *keys: str) -> Node | None:
    """The first of these keys that holds something; null and empty text hold nothing."""
    for key in keys:
        node = section.entries.get(key)
        if node is not None and not (isinstance(node, Scalar) and node.value in {None, ""}):
            return node
    return None


def default_scalar(root: Fields, path: str, value: ScalarValue) -> Scalar:
    """A default value, at no line of the document."""
    return Scalar(value, Location(root.location.where, path, root.location.line), DEFAULT)


def variable_scalar(name: str, path: str, value: str) -> Scalar:
    """A value from the environment."""
    where = f"environment {name}"
    return Scalar(Substituted(value), Location(where, path), where, where)


def replaced(node: Scalar, value: ScalarValue) -> Scalar:
    """The same spot of the document with the value in our form."""
    if node.source is not None and isinstance(value, str):
        value = Substituted(value)
    return Scalar(value, node.location, node.origin, node.source, node.is_plain)


def lowered(node: Node | None) -> Node | None:
    """The same text in lower case, for programs that ignore case."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return replaced(node, node.value.lower())
    return node


def whole_number(node: Node) -> int | None:
    """The number a scalar holds, also when it came from a variable; None for anything else."""
    if not isinstance(node, Scalar) or isinstance(node.value, bool):
        return None
    if isinstance(node.value, Substituted) and _WHOLE_NUMBER.fullmatch(node.value):
        return int(node.value)
    return node.value if isinstance(node.value, int) else None


def pipeline_name(text: str) -> str:
    """A legal pipeline name like this text; the same text always gives the same name."""
    name = _NOT_IN_NAMES.sub("_", text.lower()).strip("_")
    if len(name) <= LONGEST_PIPELINE_NAME:
        return name
    # Two long names must not become one by cutting.
    mark = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{name[: LONGEST_PIPELINE_NAME - 9]}_{mark}"
