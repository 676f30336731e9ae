"""From a file and the environment to a checked configuration, or to all mistakes at once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from frazil.config.foreign.merger_document import translate_merger
from frazil.config.foreign.processor_document import translate_processor
from frazil.config.foreign.translation import Translation
from frazil.config.loading.nodes import Fields, Location, Mistake, Node, Scalar, describe_shape
from frazil.config.loading.overrides import overlay
from frazil.config.loading.settings import trace_origins
from frazil.config.loading.substitution import Substitution
from frazil.config.loading.text_file import LARGEST_DOCUMENT, UnreadableError, read_text
from frazil.config.loading.validation import MOST_MISTAKES, validate
from frazil.config.loading.yaml_tree import RefusedYamlError, parse_yaml
from frazil.errors import ConfigError
from frazil.model.humanize import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from frazil.config.models.document import Config

PATH_VARIABLE = "CONFIG_FILE"
DEFAULT_PATH = "frazil.yaml"

_OURS_ONLY = frozenset({"pipeline", "catalog", "source"})
_PROCESSORS_ONLY = frozenset({"s3", "mappings", "offsets", "discovery", "etcd", "processor"})


class Dialect(StrEnum):
    """The documents we read."""

    NATIVE = "native"
    MERGER = "merger"
    PROCESSOR = "processor"


def recognise(document: Fields) -> Dialect:
    """The dialect a document is written in; in doubt it is ours."""
    keys = document.entries.keys()
    if keys & _OURS_ONLY:
        return Dialect.NATIVE
    if "project_ref" in keys or {"iceberg", "tables"} <= keys:
        return Dialect.MERGER
    return Dialect.PROCESSOR if keys & _PROCESSORS_ONLY else Dialect.NATIVE


def translate(document: Fields, dialect: Dialect, environ: Mapping[str, str]) -> Translation:
    """The document in our form; ours needs no translation."""
    if dialect is Dialect.MERGER:
        return translate_merger(document, environ)
    if dialect is Dialect.PROCESSOR:
        return translate_processor(document, environ)
    return Translation(document)


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration, and where each of its values came from."""

    config: Config
    dialect: Dialect
    origins: Mapping[str, str]
    warnings: tuple[str, ...]
    path: Path


def load_config(path: Path | None, *, environ: Mapping[str, str]) -> LoadedConfig:
    """Read, fill in, translate, overlay and check the document.

    Without a path the variable CONFIG_FILE is used, then ``frazil.yaml``. Raises
    ConfigError with every mistake; no message ever holds a secret.
    """
    path = path or Path(environ.get(PATH_VARIABLE) or DEFAULT_PATH)
    try:
        text = read_text(path, limit=LARGEST_DOCUMENT)
    except UnreadableError as error:
        raise _config_error(path, [Mistake(Location(str(path), ""), str(error))]) from None
    return parse_config(text, path, environ=environ)


def parse_config(text: str, path: Path, *, environ: Mapping[str, str]) -> LoadedConfig:
    """The same for a text that is in this file, or is to be written there."""
    directory = path.parent.absolute()
    root, mistakes = _read_tree(text, path)
    substitution = Substitution(environ, directory)
    filled = substitution.fill(root)
    mistakes.extend(substitution.mistakes)
    document = _as_mapping(filled, mistakes)
    dialect = recognise(document)
    translation = translate(document, dialect, environ)
    tree, faults = overlay(translation.root, environ)
    mistakes.extend((*translation.mistakes, *faults))
    config, faults = validate(tree, directory, known_wrong=translation.wrong)
    mistakes.extend(faults)
    if config is None or mistakes:
        raise _config_error(path, mistakes)
    origins = MappingProxyType(trace_origins(config, tree))
    return LoadedConfig(config, dialect, origins, tuple(translation.warnings), path)


def _read_tree(text: str, path: Path) -> tuple[Node, list[Mistake]]:
    try:
        root, mistakes = parse_yaml(text, label=str(path))
    except RefusedYamlError as error:
        raise _config_error(path, list(error.mistakes)) from None
    return root, list(mistakes)


def _as_mapping(root: Node, mistakes: list[Mistake]) -> Fields:
    if isinstance(root, Fields):
        return root
    if isinstance(root, Scalar) and root.value is None and not mistakes:
        mistakes.append(Mistake(root.location, "is empty; `frazil init` writes a configuration"))
    else:
        sentence = f"must be a mapping of sections; found {describe_shape(root)}"
        mistakes.append(Mistake(root.location, sentence))
    raise _config_error(Path(root.location.where), mistakes)


def _one_per_location(mistakes: Iterable[Mistake]) -> list[Mistake]:
    """A missing variable is not also a missing value, and under an unknown key it is nothing."""
    kept: dict[tuple[str, str], Mistake] = {}
    for mistake in sorted(mistakes, key=lambda m: not m.is_about_key):
        kept.setdefault((mistake.location.where, mistake.location.path), mistake)
    return list(kept.values())


def _config_error(path: Path, mistakes: Iterable[Mistake]) -> ConfigError:
    ordered = sorted(
        _one_per_location(mistakes), key=lambda m: (m.location.line == 0, m.location.line)
    )
    lines = [str(mistake) for mistake in ordered[:MOST_MISTAKES]]
    if len(ordered) > MOST_MISTAKES:
        lines.append(f"{path}: and {len(ordered) - MOST_MISTAKES} more")
    count = counted(len(ordered), "mistake")
    message = "\n".join((f"{count} in the configuration", *lines))
    return ConfigError(message, mistakes=tuple(lines))
