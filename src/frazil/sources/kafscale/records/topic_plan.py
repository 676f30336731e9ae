"""How the records of a topic become rows; decided on the driver, made to travel to tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil.config.models.kafscale_source import (
        Envelope,
        Lfs,
        OnBadSegment,
        OnGap,
        OnWrongValue,
        TopicColumn,
        Validation,
    )
    from frazil.model.source_table import SourceColumn
    from frazil.sources.kafscale.records.record_schema import RecordSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """One topic.

    ``columns`` are those of its table, each with its number for ever. ``fields`` are the ones that
    the JSON of a record's value has, in their order. ``key`` are numbers of columns; only a topic
    of changes, which ``is_changes``, may have some. ``sequence`` is the path of the field that
    orders changes of one key, empty for the offset. ``schema`` is what records are compared with.
    """

    topic: str
    columns: tuple[SourceColumn, ...]
    fields: tuple[TopicColumn, ...] = ()
    is_changes: bool = False
    key: tuple[int, ...] = ()
    sequence: tuple[str, ...] = ()
    envelope: Envelope
    lfs: Lfs
    validation: Validation
    schema: RecordSchema | None = None
    on_wrong_value: OnWrongValue
    on_bad_segment: OnBadSegment
    on_gap: OnGap

    def number(self, name: str) -> int:
        """The number of the column with this name; KeyError for any other."""
        found = next((each.number for each in self.columns if each.name == name), None)
        if found is None:
            raise KeyError(name)
        return found
