"""What an operator's position becomes: checked, and completed to a marker; pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from frazil.errors import ConfigError
from frazil.model.marker import Marker, MarkerRole
from frazil.pipeline.configured_source import configured_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frazil.config import Config
    from frazil.model.marker import Position

_NUMBER = re.compile(r"[0-9]{1,19}")


def parse_position(text: str) -> Position:
    """Read a position as ``position show`` prints it: text, or a JSON object of offsets."""
    if not text.startswith("{"):
        return text
    try:
        offsets = json.loads(text)
    except json.JSONDecodeError as error:
        message = f"the position is no JSON object: {error.msg} at character {error.pos}."
        raise ConfigError(message) from error
    for offset in offsets.values():
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise ConfigError("every offset of a position must be a number of at least 0.")
    return {str(partition): int(offset) for partition, offset in offsets.items()}


def check_position(position: Position, role: MarkerRole, config: Config) -> None:
    """Refuse what cannot be a position of this role with this source."""
    problem = None
    if role is MarkerRole.MERGE:
        if not (isinstance(position, str) and _NUMBER.fullmatch(position)):
            problem = "a mirror's position is a snapshot id of its changelog"
    elif config.source is not None:
        problem = configured_source(config).position_problem(position)
    elif not position:
        problem = "a position is not empty"
    if problem is not None:
        message = f"--to: {problem}."
        raise ConfigError(message, next_step="frazil position show prints positions as they are")


def plan_goal(
    known: Sequence[Marker],
    *,
    pipeline: str,
    position: Position,
    source: str | None,
    batch: str,
) -> Marker:
    """The marker to write; what the operator did not say comes from the markers ``known``.

    How far rows were merged is kept only where it was known for this very position: a wrong
    answer would stop the table, or let an old change win.
    """
    chosen = source or next((marker.source for marker in known if marker.source), None)
    if chosen is None:
        raise ConfigError(
            "the table has no marker that gives the kind of its positions.",
            next_step="say it with --source",
        )
    same = next(
        (each for each in known if each.position == position and each.source == chosen), None
    )
    return Marker(
        pipeline=pipeline,
        source=chosen,
        position=position,
        batch=batch,
        epoch=max((marker.epoch for marker in known), default=0),
        sequence=None if same is None else same.sequence,
        truncated=None if same is None else same.truncated,
    )
