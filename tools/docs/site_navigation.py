"""A hook of MkDocs: every decision is in the navigation, in order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import MutableMapping

FOLDER = "decisions"
TITLE = "Decisions"


def on_config(config: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Fill the empty entry; MkDocs calls this before it collects pages."""
    pages = sorted((Path(config["docs_dir"]) / FOLDER).glob("*.md"))
    listed = [f"{FOLDER}/{page.name}" for page in pages]
    config["nav"] = [_filled(each, listed) for each in config["nav"]]
    return config


def _filled(entry: Any, listed: list[str]) -> Any:  # noqa: ANN401 - as YAML has it
    if isinstance(entry, list):
        return [_filled(each, listed) for each in entry]
    if isinstance(entry, dict):
        return {
            title: listed if title == TITLE else _filled(below, listed)
            for title, below in entry.items()
        }
    return entry
