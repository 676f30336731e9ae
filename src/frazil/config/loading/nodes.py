"""The document as a tree in which every value still knows where it was written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil.config.models.section import KeyPath

# Longer than any path of ours.
_LONGEST_PATH_SHOWN = 200

ScalarValue = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Location:
    """Where a value is written: ``frazil.yaml:12`` and the path."""

    where: str
    path: str
    line: int = 0

    def child(self, key: str | int) -> Location:
        """The same location for something that is missing below this value."""
        return Location(self.where, join_path(self.path, key), self.line)


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake at one location; an unknown key makes its value irrelevant."""

    location: Location
    sentence: str
    is_about_key: bool = False

    def __str__(self) -> str:
        path = f"{_printable(self.location.path)}: " if self.location.path else ""
        return f"{self.location.where}: {path}{self.sentence}"


def _printable(path: str) -> str:
    """A path that is safe for a terminal: keys are arbitrary text."""
    if len(path) > _LONGEST_PATH_SHOWN:
        path = f"{path[:_LONGEST_PATH_SHOWN]}…"
    return "".join(character if character.isprintable() else "�" for character in path)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value; ``source`` names the variable or file it came from, if it did."""

    value: ScalarValue = field(repr=False)
    location: Location
    origin: str
    source: str | None = None
    is_plain: bool = True


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Node, ...]
    location: Location


@dataclass(frozen=True, slots=True)
class Fields:
    """A mapping; the dictionary is filled while the tree is built and not changed afterwards."""

    entries: dict[str, Node]
    location: Location


Node = Scalar | Items | Fields


def join_path(path: str, key: str | int) -> str:
    """``tables`` and 0 make ``tables[0]``; ``tables[0]`` and ``key`` make ``tables[0].key``."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def spell_path(path: KeyPath) -> str:
    """The dotted spelling of a path of keys and indexes."""
    spelled = ""
    for key in path:
        spelled = join_path(spelled, key)
    return spelled


def child_of(node: Node, key: str | int) -> Node | None:
    """The child of a node, if there is one."""
    if isinstance(node, Fields) and isinstance(key, str):
        return node.entries.get(key)
    if isinstance(node, Items) and isinstance(key, int) and 0 <= key < len(node.items):
        return node.items[key]
    return None


def origin_of(node: Node) -> str:
    """Where a value came from, as ``config show`` prints it."""
    if isinstance(node, Scalar):
        return node.origin
    below = {origin_of(item) for item in node.items} if isinstance(node, Items) else set()
    return below.pop() if len(below) == 1 else node.location.where


def describe_shape(node: Node) -> str:
    """The kind of a node, without its value."""
    if isinstance(node, Fields):
        return "a mapping"
    if isinstance(node, Items):
        return "a list"
    if node.value is None:
        return "nothing"
    if isinstance(node.value, bool):
        return "a truth value"
    return "text" if isinstance(node.value, str) else "a number"
