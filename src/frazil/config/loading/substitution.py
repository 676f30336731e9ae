"""``${VAR}``, ``${VAR:-default}``, ``${file:/path}`` and ``$$`` in the scalars of a tree."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from frazil.config.loading.nodes import Fields, Items, Mistake, Node, Scalar
from frazil.config.loading.text_file import LARGEST_VALUE_FILE, UnreadableError, read_text
from frazil.config.models.values import Substituted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_REFERENCE = re.compile(r"\$(?:\$|\{([^{}]*)\}|\{)")
_VARIABLE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_FILE = "file:"
# Four documents' worth; a small text must not become a large one by naming a variable often.
MOST_SUBSTITUTED = 2**22


class Substitution:
    """Fills the references of one document and remembers what could not be filled."""

    def __init__(self, environ: Mapping[str, str], directory: Path) -> None:
        self.mistakes: list[Mistake] = []
        self._environ = environ
        self._directory = directory
        self._files: dict[str, str] = {}
        self._budget = MOST_SUBSTITUTED

    def fill(self, node: Node) -> Node:
        """The same tree with every reference replaced by what it names."""
        if isinstance(node, Fields):
            return Fields(
                {key: self.fill(below) for key, below in node.entries.items()}, node.location
            )
        if isinstance(node, Items):
            return Items(tuple(map(self.fill, node.items)), node.location)
        if not isinstance(node.value, str) or "$" not in node.value:
            return node
        return self._fill_scalar(node, node.value)

    def _fill_scalar(self, node: Scalar, text: str) -> Scalar:
        sources: list[str] = []

        def replace(match: re.Match[str]) -> str:
            if match[0] == "$$":
                return "$"
            return self._look_up(match[1], node, sources)

        filled = _REFERENCE.sub(replace, text)
        self._budget -= len(filled)
        if self._budget < 0:
            self._complain(node, "variables and files make the document too large")
            return Scalar(None, node.location, node.origin)
        if not filled and _REFERENCE.fullmatch(text):
            # Nothing where a reference stood alone is YAML's nothing, as if it had not been
            # written; quotes do not matter, because charts and JSON add them unasked.
            return Scalar(None, node.location, _origin(sources, node), _source(sources))
        return Scalar(Substituted(filled), node.location, _origin(sources, node), _source(sources))

    def _look_up(self, reference: str | None, node: Scalar, sources: list[str]) -> str:
        if reference is not None and reference.startswith(_FILE):
            return self._load(reference.removeprefix(_FILE), node, sources)
        match = _VARIABLE.fullmatch(reference or "")
        if match is None:
            self._complain(
                node, "a reference must be ${NAME}, ${NAME:-default} or ${file:/path}; $$ is a $"
            )
            return ""
        name, default = match["name"], match["default"]
        value = self._environ.get(name)
        if value is None and default is None:
            self._complain(
                node, f"the environment variable {name} is not set; set it, or write ${{{name}:-…}}"
            )
            return ""
        if default is not None and not value:
            return default
        sources.append(f"${{{name}}}")
        return value or ""

    def _load(self, name: str, node: Scalar, sources: list[str]) -> str:
        path = self._directory / name
        sources.append(f"file {path}")
        if name not in self._files:
            self._files[name] = ""
            try:
                text = read_text(path, limit=LARGEST_VALUE_FILE)
            except UnreadableError as error:
                self._complain(node, f"the file {path} {error}")
            else:
                # Editors and `echo` end a file with a line break that is no part of a secret.
                self._files[name] = text.removesuffix("\n").removesuffix("\r")
        return self._files[name]

    def _complain(self, node: Scalar, sentence: str) -> None:
        self.mistakes.append(Mistake(node.location, sentence))


def _source(sources: list[str]) -> str | None:
    return ", ".join(sources) or None


def _origin(sources: list[str], node: Scalar) -> str:
    if not sources:
        return node.origin
    if all(source.startswith("file ") for source in sources):
        return ", ".join(sources)
    return f"{', '.join(sources)} at {node.location.where}"
