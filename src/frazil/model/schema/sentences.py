"""Steps of a schema change as sentences, for plans, reports and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.model.schema.change import Add, Drop, Move, Rename, Widen

if TYPE_CHECKING:
    from frazil.model.schema.change import SchemaChange, Step
    from frazil.model.schema.types import Schema


def sentences(change: SchemaChange, before: Schema, after: Schema) -> tuple[str, ...]:
    """What each step does, by the names that people know; values of defaults are not shown."""
    old = {each.field.id: each.name for each in before.columns()}
    new = {each.field.id: each.name for each in after.columns()}
    return tuple(_sentence(step, old, new) for step in change.steps)


def _sentence(step: Step, old: dict[int, str], new: dict[int, str]) -> str:
    match step:
        case Add(field):
            default = "" if field.initial_default is None else " with a default"
            return f"{new[field.id]} is added as {field.type}{default}"
        case Drop(id_):
            return f"{old[id_]} is dropped"
        case Rename(id_):
            return f"{old[id_]} is renamed to {new[id_]}"
        case Move(id_, after):
            where = "to the front" if after is None else f"behind {new[after]}"
            return f"{new[id_]} moves {where}"
        case Widen(id_, was, becomes):
            return f"{old[id_]} becomes {becomes}, and was {was}"
        case _:
            return f"{old[step.id]} becomes optional"
