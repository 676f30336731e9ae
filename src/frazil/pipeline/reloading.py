"""What may change in a running process, and what needs another start; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.config import Config

# Everything else is built into objects, files or tables when a process starts.
RELOADABLE = frozenset(
    {"ingest.interval", "merge.interval", "maintenance.interval", "telemetry.log.level"}
)


@dataclass(frozen=True, slots=True)
class Reload:
    """The keys that differ: those that are taken, and those that stay as they were."""

    taken: tuple[str, ...]
    refused: tuple[str, ...]


def plan_reload(before: Config, after: Config) -> Reload:
    """Compare two documents; only names of keys come out, no value does."""
    old, new = dict(_leaves(before.model_dump())), dict(_leaves(after.model_dump()))
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return Reload(
        taken=tuple(name for name in changed if name in RELOADABLE),
        refused=tuple(name for name in changed if name not in RELOADABLE),
    )


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value
