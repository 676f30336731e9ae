"""The tables that topics become, and how tasks read their records.

Columns have numbers for ever. Those that every table of records has come first; a column that was
declared once keeps its number, also when it is not declared any more: then it has nulls.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from frazil.config.models.kafscale_source import (
    ColumnsFrom,
    OnWrongValue,
    TopicColumn,
    TopicColumnType,
    Validation,
)
from frazil.errors import ConfigError, UnsupportedSchemaChangeError
from frazil.model.schema.change import widens
from frazil.model.schema.table_layout import CDC_LAYOUT, TableLayout
from frazil.model.schema.types import Primitive
from frazil.model.source_table import SourceColumn, SourceTable, TableBegin
from frazil.sources.kafscale.reading.record_rows import BASE_COLUMNS, LFS_COLUMNS
from frazil.sources.kafscale.records.topic_plan import TopicPlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from frazil.config.models.kafscale_source import Envelope, KafscaleSection, Topic
    from frazil.sources.kafscale.records.record_schema import RecordSchema
    from frazil.sources.kafscale.records.schema_registry import SchemaRegistry

_OFFSET_COLUMNS = ("topic", "partition", "offset")
# The setting's word for the order that records have in their partition.
_BY_OFFSET = "offset"

ICEBERG_TYPES: Mapping[TopicColumnType, Primitive] = {
    TopicColumnType.BOOLEAN: Primitive.BOOLEAN,
    TopicColumnType.INT: Primitive.INT,
    TopicColumnType.LONG: Primitive.LONG,
    TopicColumnType.FLOAT: Primitive.FLOAT,
    TopicColumnType.DOUBLE: Primitive.DOUBLE,
    TopicColumnType.STRING: Primitive.STRING,
    TopicColumnType.BINARY: Primitive.BINARY,
    TopicColumnType.TIMESTAMP: Primitive.TIMESTAMP,
    TopicColumnType.DATE: Primitive.DATE,
}
_TOPIC_TYPES = {iceberg: declared for declared, iceberg in ICEBERG_TYPES.items()}


class TopicTables:
    """The topics of one section; ``registry`` is where it says that schemas are."""

    def __init__(self, section: KafscaleSection, registry: SchemaRegistry) -> None:
        self._section = section
        self._registry = registry
        self._topics = {each.topic: each for each in section.topics}

    @property
    def names(self) -> tuple[str, ...]:
        """The topics that the configuration names."""
        return tuple(self._topics)

    def declared(self, topic: str) -> SourceTable:
        """The table without what only the registry or its records know.

        What is wrong with its settings is an obstacle of this topic alone.
        """
        found = self._topics[topic]
        try:
            return self._table(found, self._columns(found, found.columns, ""), "")
        except ConfigError as error:
            return SourceTable(
                name=topic,
                identity=topic,
                shape="",
                columns=(),
                obstacle=error,
                begins=TableBegin.STREAM,
            )

    def learns_columns(self, topic: str) -> bool:
        """Whether its records themselves say which columns it has."""
        found = self._topics[topic]
        is_silent = self._section.columns_from(found) is ColumnsFrom.NONE
        return found.changelog is not None and is_silent

    def envelope(self, topic: str) -> Envelope:
        """What the values of its records are wrapped in."""
        return self._topics[topic].envelope

    def load(
        self, topic: str, shape: str, learnt: Sequence[TopicColumn] = ()
    ) -> tuple[SourceTable, TopicPlan]:
        """The table as its next records need it, and how these are read.

        ``shape`` is what the table had before, ``learnt`` the columns that records brought. Raises
        ConfigError and UnsupportedSchemaChangeError for this topic alone, SourceUnavailableError
        for a registry that does not answer.
        """
        found, schema = self._topics[topic], self._load_schema(topic)
        declared = self._declared_fields(found, schema) or tuple(learnt)
        columns = self._columns(found, declared, shape)
        table = self._table(found, columns, shape)
        types = {name: type_ for name, (_, type_) in parse_shape(table.shape).items()}
        fields = tuple(
            each.model_copy(update={"type": _TOPIC_TYPES[types[each.name]]}) for each in declared
        )
        default = OnWrongValue.NULL if found.changelog is None else OnWrongValue.DEAD_LETTER
        plan = TopicPlan(
            topic=topic,
            columns=columns,
            fields=fields,
            is_changes=found.changelog is not None,
            key=table.key,
            sequence=() if found.sequence == _BY_OFFSET else tuple(found.sequence.split(".")),
            envelope=found.envelope,
            lfs=found.lfs,
            validation=self._section.validation,
            schema=schema if self._section.validation is not Validation.OFF else None,
            on_wrong_value=found.on_wrong_value or default,
            on_bad_segment=self._section.on_bad_segment,
            on_gap=self._section.on_gap,
        )
        return table, plan

    def _load_schema(self, topic: str) -> RecordSchema | None:
        is_needed = (
            self._section.validation is not Validation.OFF
            or self._section.columns_from(self._topics[topic]) is ColumnsFrom.REGISTRY
        )
        return self._registry.load(topic) if is_needed else None

    def _declared_fields(
        self, topic: Topic, schema: RecordSchema | None
    ) -> tuple[TopicColumn, ...]:
        match self._section.columns_from(topic):
            case ColumnsFrom.MAPPING:
                return topic.columns
            case ColumnsFrom.REGISTRY if schema is not None:
                return schema.columns()
        return ()

    def _columns(
        self, topic: Topic, fields: Sequence[TopicColumn], shape: str
    ) -> tuple[SourceColumn, ...]:
        known = parse_shape(shape)
        wanted: dict[str, tuple[Primitive, bool]] = {}
        if topic.changelog is None:
            wanted |= {name: (type_, required) for name, type_, required in BASE_COLUMNS}
        for each in fields:
            if each.name in wanted:
                message = f"column {each.name} is one that the table of every topic has."
                raise ConfigError(message, table=topic.topic, next_step="give it another name")
            type_ = self._followed(topic, each, known.get(each.name))
            # A change may lack it: a DELETE has the key only.
            wanted[each.name] = type_, each.required and topic.changelog is None
        if topic.changelog is None and topic.lfs.store_metadata:
            wanted |= {name: (type_, required) for name, type_, required in LFS_COLUMNS}
        # What was declared once has nulls from now on.
        wanted |= {name: (type_, False) for name, (_, type_) in known.items() if name not in wanted}
        highest = max((number for number, _ in known.values()), default=0)
        columns = []
        for name, (type_, required) in wanted.items():
            number = known[name][0] if name in known else (highest := highest + 1)
            columns.append(SourceColumn(number=number, name=name, type=type_, required=required))
        return tuple(sorted(columns, key=lambda each: each.number))

    def _followed(
        self, topic: Topic, field: TopicColumn, known: tuple[int, Primitive] | None
    ) -> Primitive:
        """The type of a column that may have had another one before."""
        wanted = ICEBERG_TYPES[field.type]
        if known is None or known[1] is wanted:
            return wanted
        if topic.widen and widens(known[1], wanted):
            return wanted
        if topic.widen and widens(wanted, known[1]):
            # The wider one holds every value of the narrower one.
            return known[1]
        message = f"column {field.name} changes from {known[1]} to {wanted}."
        step = "change it back"
        if widens(known[1], wanted):
            step += ", or set widen: true for the topic"
        raise UnsupportedSchemaChangeError(message, table=topic.topic, next_step=step)

    def _table(self, topic: Topic, columns: tuple[SourceColumn, ...], shape: str) -> SourceTable:
        numbers = {each.name: each.number for each in columns}
        missing = [name for name in topic.key if name not in numbers]
        # What the registry or the records bring may not be known yet.
        is_complete = columns or self._section.columns_from(topic) is ColumnsFrom.MAPPING
        if missing and is_complete:
            message = f"its key has columns that are not declared: {', '.join(missing)}."
            raise ConfigError(message, table=topic.topic, next_step="declare them under columns")
        highest = max([0, *(number for number, _ in parse_shape(shape).values())])
        return SourceTable(
            name=topic.topic,
            identity=topic.topic,
            shape=describe_shape(columns),
            columns=columns,
            key=tuple(numbers[name] for name in topic.key if name in numbers),
            highest_number=max([highest, *numbers.values()]),
            layout=_layout(topic),
            begins=TableBegin.STREAM,
        )


def _layout(topic: Topic) -> TableLayout:
    partition_by = tuple(("", each) for each in topic.partition_by)
    if topic.changelog is not None:
        return TableLayout(
            columns=CDC_LAYOUT.columns, partition_by=partition_by, is_created=topic.create
        )
    return TableLayout(
        columns=(),
        required=frozenset(),
        partition_by=partition_by,
        sort_by=topic.sort_by,
        is_created=topic.create,
        offset_columns=_OFFSET_COLUMNS,
    )


def describe_shape(columns: Iterable[SourceColumn]) -> str:
    """What comes back as the shape of the table, to recognise its columns."""
    described = [[each.number, each.name, str(each.type)] for each in columns]
    return json.dumps(described, separators=(",", ":"), ensure_ascii=False)


def parse_shape(shape: str) -> Mapping[str, tuple[int, Primitive]]:
    """Number and type of each column that a table had."""
    described = json.loads(shape) if shape else []
    return {name: (number, Primitive(type_)) for number, name, type_ in described}
