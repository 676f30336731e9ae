"""YAML text to a tree: the core schema of YAML 1.2 and nothing clever.

The tree is built from parser events, so that every bound is checked while reading and nothing is
ever constructed from a tag. Aliases are refused altogether: a document of three screens does not
need them, and without them no text can grow.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from frazil.config.loading.nodes import Fields, Items, Location, Mistake, Node, Scalar, ScalarValue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ruamel.yaml.events import Event

# Inside {…} a brace ends the mapping and a comma ends the value, so neither {key: ${S3_KEY}} nor
# {price: decimal(20,6)} is YAML. People write it all the same, and so do we in our documentation.
# Before parsing, such characters are moved to a plane where YAML sees letters only, and moved back
# in every scalar.

# No brace inside a reference: with one, a text of nothing but openings would be searched in its
# square. No quote either: the end of a quoted scalar must stay visible.
_REFERENCE = r"\$\{[^{}\n\r'\"]*\}"
_ARGUMENTS = r"(?<=[A-Za-z])\([^(){}\[\]\n\r'\"]*\)"
_FRAGILE = re.compile(f"{_REFERENCE}|{_ARGUMENTS}")
# What has a meaning inside {…} and […]; a backslash is not among them, quotes need it.
_HIDDEN = frozenset("{}[],:#")
# The last private-use plane: printable for YAML, and in no document.
_PLANE = 0x100000
_SHIELDED = re.compile(f"[{chr(_PLANE)}-{chr(_PLANE + 0x7F)}]")

# Our own document is five deep; anything near this is not a configuration.
DEEPEST = 32
# Two thousand tables with ten settings each; also what keeps reading within two seconds.
MOST_NODES = 20_000
_LARGEST_INTEGER = 2**63

_CORE_TAG = re.compile(r"tag:yaml\.org,2002:(str|int|float|bool|null|seq|map)")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTHS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]{1,20}")
_OCTAL = re.compile(r"0o[0-7]{1,24}")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]{1,18}")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]{1,400}|[0-9]{1,400}(?:\.[0-9]{0,400})?)(?:[eE][-+]?[0-9]{1,4})?"
)
_SPECIAL_FLOAT = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_QUOTED = re.compile("'[^']*'|\"[^\"]*\"")
# The parser needs the square of a tag's length; no tag is read anyway.
_ENDLESS_TAG = re.compile(r"(?:^|[\s\[\]{},:?-])!\S{1024}")

# What the parser is known to raise on broken input besides its own errors.
_PARSER_FAULTS = (
    YAMLError, ArithmeticError, AssertionError, AttributeError, LookupError, NotImplementedError,
    TypeError, ValueError,
)  # fmt: skip


def is_shielded(text: str) -> bool:
    """Whether a text holds characters of that plane by itself."""
    return _SHIELDED.search(text) is not None


def shield(text: str) -> str:
    """Hide references and arguments from the parser; lines stay where they are."""
    return _FRAGILE.sub(lambda match: "".join(map(_hide, match[0])), text)


def unshield(text: str) -> str:
    """The text as it was written."""
    return _SHIELDED.sub(lambda match: chr(ord(match[0]) - _PLANE), text)


def _hide(character: str) -> str:
    return chr(_PLANE + ord(character)) if character in _HIDDEN else character


class RefusedYamlError(Exception):
    """The text cannot be used at all; carries every mistake found until then."""

    def __init__(self, mistakes: tuple[Mistake, ...]) -> None:
        super().__init__(*map(str, mistakes))
        self.mistakes = mistakes


def parse_yaml(
    text: str, *, label: str, path: str = "", numbered: bool = True
) -> tuple[Node, tuple[Mistake, ...]]:
    """Read one YAML document, with what is wrong in it; raises RefusedYamlError when unreadable.

    ``label`` is the file or variable shown in messages; without ``numbered`` lines are left out,
    because an environment variable has none.
    """
    return _Reading(text, label=label, path=path, numbered=numbered).document()


class _Reading:
    """One pass over the events of one text."""

    def __init__(self, text: str, *, label: str, path: str, numbered: bool) -> None:
        self._text = text
        self._label = label
        self._numbered = numbered
        self._root = path
        self._mistakes: list[Mistake] = []
        self._nodes = 0
        self._events = self._guarded_events()

    def document(self) -> tuple[Node, tuple[Mistake, ...]]:
        """The root of the only document in the text, and the mistakes that did not end it."""
        root: Node | None = None
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                location = self._location(event, self._root)
                if root is not None:
                    self._refuse(location, "there is a second document; only one is read")
                if event.version not in {None, (1, 2)}:
                    self._refuse(location, "declares a YAML version other than 1.2")
            elif isinstance(event, NodeEvent):
                root = self._node(event, self._location(event, self._root), depth=0)
        if root is None:
            root = Scalar(None, Location(self._where(0), self._root, 1), self._where(0))
        return root, tuple(self._mistakes)

    def _guarded_events(self) -> Iterator[Event]:
        if is_shielded(self._text):
            self._stop(0, "a character of a private plane")
        if _ENDLESS_TAG.search(self._text):
            self._stop(0, "a tag without end")
        loader = YAML(typ="safe", pure=True)
        try:
            yield from loader.parse(shield(self._text))
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self._stop(mark.line if mark is not None else 0, error.problem or "")
        except _PARSER_FAULTS:
            self._stop(0, "a character or escape that cannot be read")

    def _stop(self, line: int, problem: str) -> None:
        # The parser may quote what it met, and that may be a part of a secret.
        problem = _QUOTED.sub(_if_harmless, problem).strip("(), ")
        location = Location(self._where(line), self._root, line + 1)
        self._refuse(location, f"is not valid YAML: {problem}")

    def _refuse(self, location: Location, sentence: str) -> None:
        self._mistakes.append(Mistake(location, sentence))
        raise RefusedYamlError(tuple(self._mistakes))

    def _where(self, line: int) -> str:
        return f"{self._label}:{line + 1}" if self._numbered else self._label

    def _location(self, event: Event, path: str) -> Location:
        line: int = event.start_mark.line
        return Location(self._where(line), path, line + 1)

    def _node(self, event: Event, location: Location, *, depth: int) -> Node:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            self._refuse(location, f"there are more than {MOST_NODES} values")
        if depth > DEEPEST:
            self._refuse(location, f"is nested more than {DEEPEST} levels deep")
        if isinstance(event, AliasEvent):
            self._mistakes.append(Mistake(location, "aliases are not read; write the value out"))
        elif not _has_core_tag(event):
            self._mistakes.append(Mistake(location, "tags are not read; write plain YAML"))
        if isinstance(event, MappingStartEvent):
            return self._fields(location, depth=depth)
        if isinstance(event, SequenceStartEvent):
            return self._items(location, depth=depth)
        return self._scalar(event, location)

    def _items(self, location: Location, *, depth: int) -> Items:
        items: list[Node] = []
        for event in self._events:
            if isinstance(event, CollectionEndEvent):
                break
            below = self._location(event, f"{location.path}[{len(items)}]")
            items.append(self._node(event, below, depth=depth + 1))
        return Items(tuple(items), location)

    def _fields(self, location: Location, *, depth: int) -> Fields:
        entries: dict[str, Node] = {}
        for event in self._events:
            if isinstance(event, CollectionEndEvent):
                break
            key = self._key(event, location, depth=depth)
            if key is None:
                self._node(
                    next(self._events), self._location(event, location.path), depth=depth + 1
                )
                continue
            below = self._location(event, f"{location.path}.{key}" if location.path else key)
            if key in entries:
                first = entries[key].location.line
                sentence = f"is given twice; the first is on line {first}"
                if not self._numbered:
                    sentence = "is given twice"
                self._mistakes.append(Mistake(below, sentence))
            # The location of a value is the line of its key.
            entries[key] = self._node(next(self._events), below, depth=depth + 1)
        return Fields(entries, location)

    def _key(self, event: Event, location: Location, *, depth: int) -> str | None:
        at = self._location(event, location.path)
        if not isinstance(event, ScalarEvent):
            self._node(event, at, depth=depth + 1)
            self._mistakes.append(Mistake(at, "keys must be plain text"))
            return None
        if event.value == "<<" and not event.style:
            self._mistakes.append(Mistake(at, "merge keys are not read; write the values out"))
            return None
        if not event.value:
            self._mistakes.append(Mistake(at, "a key is missing before the colon"))
            return None
        return unshield(str(event.value))

    def _scalar(self, event: Event, location: Location) -> Scalar:
        value: ScalarValue = None
        is_plain = False
        if isinstance(event, ScalarEvent):
            value = unshield(str(event.value))
            tag = str(event.tag or "")
            is_plain = not event.style and tag in {"", "?"}
            if is_plain or (tag.startswith("tag:") and not tag.endswith(":str")):
                value = self._resolve(value, location)
        return Scalar(value, location, location.where, is_plain=is_plain)

    def _resolve(self, text: str, location: Location) -> ScalarValue:
        try:
            return resolve_plain(text)
        except OverflowError:
            self._mistakes.append(Mistake(location, "the number does not fit into 64 bits"))
            return None


def _if_harmless(match: re.Match[str]) -> str:
    quoted = match[0][1:-1]
    is_character = len(quoted) == 1 or quoted == r"\t"
    return match[0] if is_character or quoted.startswith("<") else "something"


def _has_core_tag(event: Event) -> bool:
    tag = str(getattr(event, "tag", None) or "!")
    return tag in {"!", "?"} or _CORE_TAG.fullmatch(tag) is not None


def resolve_plain(text: str) -> ScalarValue:
    """What unquoted text means by YAML 1.2's core schema: ``off`` and ``yes`` are text.

    Raises OverflowError for an integer that does not fit into 64 bits.
    """
    if text in _NULLS:
        return None
    if text in _TRUTHS:
        return _TRUTHS[text]
    if text[:1] not in "+-.0123456789":
        return text
    for pattern, radix in ((_INTEGER, 10), (_OCTAL, 8), (_HEXADECIMAL, 16)):
        if pattern.fullmatch(text):
            return _bounded(int(text.lower().removeprefix("0o"), radix))
    if _SPECIAL_FLOAT.fullmatch(text):
        return float(text.replace(".", "", 1))
    if text.isdigit():
        raise OverflowError
    return float(text) if _FLOAT.fullmatch(text) else text


def _bounded(number: int) -> int:
    if not -_LARGEST_INTEGER <= number < _LARGEST_INTEGER:
        raise OverflowError
    return number
