"""Where each value of a configuration came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.config.loading.nodes import Node, Scalar, child_of, origin_of, spell_path
from frazil.config.loading.settings import settings_of

if TYPE_CHECKING:
    from frazil.config.loading.nodes import Fields
    from frazil.config.models.document import Config
    from frazil.config.models.section import KeyPath

DEFAULT = "default"


def trace_origins(config: Config, root: Fields) -> dict[str, str]:
    """The origin of every setting by its dotted path: a line, a variable, a file, or a default."""
    return {
        spell_path(setting.path): _origin(setting.path, root) for setting in settings_of(config)
    }


def _origin(path: KeyPath, root: Fields) -> str:
    node: Node = root
    for key in path:
        below = child_of(node, key)
        if below is None:
            # A column written as a word instead of a mapping has its parts from that word.
            return node.origin if isinstance(node, Scalar) and node.value is not None else DEFAULT
        node = below
    return origin_of(node)
