"""The configuration: one YAML document as frozen models, loading, showing, and two foreign forms.

Read ``models/document.py`` for what it contains, ``loader.py`` for how a file becomes it. What most
packages need is here, imported when it is first used, so that a command that needs none of it pays
for none; the rest is imported from its module.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil.config.loader import LoadedConfig, load_config
    from frazil.config.models.document import Config, TableSettings, table_settings

_MODULE_OF = {
    "Config": "frazil.config.models.document",
    "LoadedConfig": "frazil.config.loader",
    "TableSettings": "frazil.config.models.document",
    "load_config": "frazil.config.loader",
    "table_settings": "frazil.config.models.document",
}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


__all__ = ["Config", "LoadedConfig", "TableSettings", "load_config", "table_settings"]
