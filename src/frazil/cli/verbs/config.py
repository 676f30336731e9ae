"""The verbs ``config show`` and ``config schema``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.cli.output import OutputFormat, write_json, write_line, write_note, write_table
from frazil.config.showing import config_schema, native_document, show_document

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from frazil.cli.invocation import Invocation
    from frazil.config import LoadedConfig


def show_configuration(more: Sequence[Path], invocation: Invocation) -> None:
    """Print each document as frazil understands it; the first mistake ends the command."""
    loaded = [invocation.load(document) for document in (invocation.document, *more)]
    for each in loaded:
        for warning in each.warnings:
            write_note(f"warning: {warning}")
    if invocation.output is OutputFormat.JSON:
        shown = [_as_json(each) for each in loaded]
        write_json(shown[0] if len(shown) == 1 else shown)
        return
    for number, each in enumerate(loaded):
        if number:
            write_line()
        write_line(f"# {each.path} ({each.dialect} document)")
        rows = [(value.path, value.value, value.origin) for value in show_document(each)]
        write_table(rows, header=("SETTING", "VALUE", "FROM"))


def print_schema() -> None:
    """Print the JSON Schema that editors and other tools check documents with."""
    write_json(config_schema())


def _as_json(loaded: LoadedConfig) -> dict[str, object]:
    return {
        "path": str(loaded.path),
        "dialect": loaded.dialect.value,
        "warnings": list(loaded.warnings),
        "document": native_document(loaded),
        "origins": {value.path: value.origin for value in show_document(loaded)},
    }
