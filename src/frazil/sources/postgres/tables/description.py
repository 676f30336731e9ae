"""A table of Postgres as frazil describes it: its columns, its key, and how their text is read.

Pure. The columns come from the catalog, or from a relation message whose columns were recognised;
in the latter case the catalog may be newer, and gives only what is not in the message.

Rows that are older than a column show in it what ``attmissingval`` says, until the table is
rewritten; a volatile default, a number of its own or a computed value rewrites it at once. What
those rows show then was never sent. A column that has a default and no missing value is therefore
marked ``rewrote``. That may be wrong, in the safe direction: a default that was set after the
column was added changed no row, and costs a resync nevertheless. It misses a default that has gone
again by the time the catalog is read, together with a rewrite.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from frazil.codec.iceberg_json import default_to_json
from frazil.codec.pgoutput.messages import ReplicaIdentity
from frazil.codec.pgtext.convert import convert
from frazil.errors import ConfigError, UnrepresentableValueError, UnsupportedSchemaChangeError
from frazil.model.command import command
from frazil.model.policy import OnUnrepresentable
from frazil.model.postgres.types import plan_column, resolve_type
from frazil.model.schema.types import Nested
from frazil.model.source_table import SourceColumn, SourceTable
from frazil.sources.postgres.tables.identity import identity_of
from frazil.sources.postgres.tables.mirror_key import NoKey, NoKeyReason, mirror_key
from frazil.sources.postgres.tables.shape import KnownShape, ShapeColumn, encode_shape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.codec.pgoutput.messages import Relation
    from frazil.model.postgres.facts import Attribute
    from frazil.model.postgres.types import ColumnPlan
    from frazil.model.schema.types import Default, Type
    from frazil.sources.postgres.tables.catalog_view import CatalogView


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """What the configuration says about a table; columns by their names at the source."""

    key: tuple[str, ...] = ()
    declared: Mapping[str, Type] = field(default_factory=dict)
    on_unrepresentable: OnUnrepresentable = OnUnrepresentable.FAIL
    per_column: Mapping[str, OnUnrepresentable] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """The table, how the text of each column is read (by number), and why it has no key."""

    table: SourceTable
    plans: Mapping[int, ColumnPlan]
    no_key: NoKey | None = None


def describe_table(view: CatalogView, options: TableOptions) -> TableDescription:
    """The table as the catalog shows it.

    Raises UnsupportedSchemaChangeError for names that Spark takes for one, ConfigError for a
    declared type that cannot hold what its column may hold.
    """
    columns = tuple(_shape_column(each) for each in view.sent)
    found = mirror_key(view.table, view.published, options.key)
    numbers = {each.name: each.number for each in columns}
    key = found if isinstance(found, NoKey) else tuple(numbers[name] for name in found)
    sent = set(numbers.values())
    hidden = tuple(each.number for each in view.table.attributes if each.number not in sent)
    shape = KnownShape(columns=columns, key=(), highest=view.highest_number, hidden=hidden)
    return _describe(view, shape, key, options, known=frozenset())


def describe_known(shape: KnownShape, view: CatalogView, options: TableOptions) -> TableDescription:
    """The table as it was last described; the view only gives its types."""
    _refuse_alike(shape.columns, view.name)
    plans = {each.number: _plan(each, view, options) for each in shape.columns}
    columns = tuple(
        SourceColumn(number=each.number, name=each.name, type=plans[each.number].type)
        for each in shape.columns
    )
    table = SourceTable(
        name=view.name,
        identity=identity_of(view, options.key),
        shape=encode_shape(shape),
        columns=columns,
        key=shape.key,
    )
    return TableDescription(table=table, plans=plans)


def describe_relation(
    relation: Relation,
    numbers: Sequence[int],
    view: CatalogView,
    options: TableOptions,
    *,
    known: KnownShape,
) -> TableDescription:
    """The table as it was when the server sent this message; ``numbers`` are its columns'.

    What the message lacks comes from the view of the catalog, which may be later. Raises like
    ``describe_table``.
    """
    columns = tuple(
        ShapeColumn(number, each.name, each.type_oid, each.type_modifier)
        for number, each in zip(numbers, relation.columns, strict=True)
    )
    key = _key_of(relation, numbers, view, options)
    highest = max((known.highest, *numbers))
    # What lies between may be gone, or computed and not sent.
    born = range(known.highest + 1, highest + 1)
    hidden = tuple(each for each in (*known.hidden, *born) if each not in numbers)
    shape = KnownShape(columns=columns, key=(), highest=highest, hidden=hidden)
    return _describe(view, shape, key, options, known=frozenset(known.numbers))


def _describe(
    view: CatalogView,
    shape: KnownShape,
    key: tuple[int, ...] | NoKey,
    options: TableOptions,
    *,
    known: frozenset[int],
) -> TableDescription:
    _refuse_alike(shape.columns, view.name)
    plans = {each.number: _plan(each, view, options) for each in shape.columns}
    attributes = {each.number: each for each in view.table.attributes}
    columns = tuple(
        _source_column(each, plans[each.number], attributes.get(each.number), known)
        for each in shape.columns
    )
    key = _single(key, plans)
    found = () if isinstance(key, NoKey) else key
    shape = replace(shape, key=found)
    table = SourceTable(
        name=view.name,
        identity=identity_of(view, options.key),
        shape=encode_shape(shape),
        columns=columns,
        key=found,
        highest_number=shape.highest,
    )
    return TableDescription(
        table=table, plans=plans, no_key=key if isinstance(key, NoKey) else None
    )


def _shape_column(attribute: Attribute) -> ShapeColumn:
    return ShapeColumn(
        attribute.number, attribute.name, attribute.type_oid, attribute.type_modifier
    )


def _refuse_alike(columns: Sequence[ShapeColumn], table: str) -> None:
    by_name: dict[str, str] = {}
    for each in columns:
        other = by_name.setdefault(each.name.lower(), each.name)
        if other != each.name:
            message = f"the columns {other!r} and {each.name!r} would be one column to Spark."
            raise UnsupportedSchemaChangeError(
                message, table=table, next_step="rename one of them at the source"
            )


def _plan(column: ShapeColumn, view: CatalogView, options: TableOptions) -> ColumnPlan:
    try:
        return plan_column(
            column.name,
            resolve_type(column.type_oid, column.type_modifier, view.types),
            declared=options.declared.get(column.name),
            on_unrepresentable=options.per_column.get(column.name, options.on_unrepresentable),
        )
    except ConfigError as error:
        error.table = view.name
        raise
    except UnsupportedSchemaChangeError as error:
        error.table = view.name
        error.next_step = error.next_step or command("resync", view.name)
        raise


def _source_column(
    column: ShapeColumn, plan: ColumnPlan, attribute: Attribute | None, known: frozenset[int]
) -> SourceColumn:
    default, rewrote = None, False
    if column.number not in known:
        # Of a column that was retyped or dropped since, the catalog does not show it any more.
        is_known = attribute is not None and attribute.type_oid == column.type_oid
        default, rewrote = _older_rows(attribute, plan) if attribute and is_known else (None, True)
    return SourceColumn(
        number=column.number, name=column.name, type=plan.type, default=default, rewrote=rewrote
    )


def _older_rows(attribute: Attribute, plan: ColumnPlan) -> tuple[Default | None, bool]:
    """What rows older than a column show in it, and whether some values are not known."""
    if attribute.missing_value is None:
        return None, attribute.has_default
    if isinstance(plan.type, Nested):
        return None, True
    try:
        converted = convert(pa.array([attribute.missing_value], pa.string()), plan)
    except UnrepresentableValueError:
        # A copy meets the same value and says so.
        return None, True
    default = default_to_json(converted.values[0], plan.type)
    return default, default is None and not converted.nulled


def _key_of(
    relation: Relation, numbers: Sequence[int], view: CatalogView, options: TableOptions
) -> tuple[int, ...] | NoKey:
    """The key by the catalog, if the message does not contradict it.

    With the default identity the message marks the primary key as it was: another one found rows
    by other columns, or did not find them.
    """
    found = mirror_key(view.table, view.published, options.key)
    if isinstance(found, NoKey):
        return found
    by_name = {each.name: each.number for each in view.table.attributes}
    key = tuple(by_name[name] for name in found)
    pairs = zip(numbers, relation.columns, strict=True)
    marked = {number for number, column in pairs if column.is_key}
    is_own = relation.replica_identity is ReplicaIdentity.DEFAULT and not options.key
    if not set(key) <= marked or (is_own and set(key) != marked):
        return NoKey(NoKeyReason.NOT_COVERED, found)
    return key


def _single(
    key: tuple[int, ...] | NoKey, plans: Mapping[int, ColumnPlan]
) -> tuple[int, ...] | NoKey:
    if isinstance(key, NoKey):
        return key
    lists = tuple(plans[each].name for each in key if isinstance(plans[each].type, Nested))
    return NoKey(NoKeyReason.NOT_SINGLE, lists) if lists else key
