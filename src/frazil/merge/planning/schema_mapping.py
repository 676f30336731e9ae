"""Maps a changelog's schema to its mirror's, by field id and never by position; pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from frazil.changelog.layout import FIRST_ID, number_fields
from frazil.errors import ConfigError, UnsupportedSchemaChangeError
from frazil.merge.planning.changelog_columns import find_column, plan_columns, source_columns
from frazil.merge.planning.column_mapping import (
    ColumnMapping,
    ColumnOrigin,
    RecordedColumns,
    RecordedField,
    decode_columns,
    encode_columns,
    map_field,
)
from frazil.merge.planning.schema_following import KnownColumns, SchemaFollower, without_defaults
from frazil.model.policy import Deletes, Evolution, Order
from frazil.model.schema.change import plan_evolution, sentences
from frazil.model.schema.types import Field, Primitive, Schema, children

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from frazil.merge.planning.changelog_columns import ChangelogColumns
    from frazil.merge.planning.settings import MergeSettings
    from frazil.model.schema.change import SchemaChange
    from frazil.model.schema.types import Type

# The flag of soft deletes. Not _deleted, which is reserved: Spark refuses to read a table with a
# column of that name.
DELETED_COLUMN = "cdc_deleted"

# Existing rows have the old columns or the old key, whatever is read again.
_REFUSED = "drop the mirror {}: the next merge rebuilds it from its changelog"

# Iceberg refuses these types as identifiers: their equality is not well defined.
_NEVER_IDENTIFY = frozenset({Primitive.FLOAT, Primitive.DOUBLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPlan:
    """The mirror's schema after a merge, and how its columns are mapped.

    ``mirror`` is that schema; ``wanted`` is the same if it must be committed, None if the mirror
    has it or is created with it. ``columns`` is the text for the property ``frazil.columns``.
    ``key`` has the mirror's columns in the order of the settings. ``sequence`` is set with order
    per_key, and kept when the order changes; ``deleted`` is set with soft deletes only. ``flag``
    is the same column even after soft deletes were disabled: marked rows stay marked.
    """

    mirror: Schema
    wanted: Schema | None
    columns: str
    mappings: tuple[ColumnMapping, ...]
    key: tuple[Field, ...]
    sequence: Field | None = None
    deleted: Field | None = None
    flag: Field | None = None
    changes: tuple[str, ...] = ()

    @property
    def projection(self) -> tuple[tuple[Field, str | None], ...]:
        """The mirror's columns in order, each with the changelog's column or None."""
        return tuple(
            (each.target, each.source.name if each.source else None) for each in self.mappings
        )

    @property
    def unmapped(self) -> tuple[str, ...]:
        """The mirror's columns and members without a changelog column: dropped or foreign ones."""
        return tuple(_unmapped(self.mappings))

    @property
    def unchanged_ids(self) -> Mapping[int, int]:
        """The mirror's column by the changelog's, for rows that name columns left out by id."""
        return {each.source.id: each.target.id for each in self.mappings if each.source is not None}


def _unmapped(mappings: Iterable[ColumnMapping], where: str = "") -> Iterator[str]:
    for each in mappings:
        if each.origin is ColumnOrigin.NOTHING:
            yield f"{where}{each.target.name}"
        else:
            yield from _unmapped(each.members, f"{where}{each.target.name}.")


def plan_schema(
    changelog: Schema,
    mirror: Schema | None,
    columns: str | None,
    settings: MergeSettings,
    *,
    last_column_id: int = 0,
    format_version: int | None = None,
    pinned: frozenset[int] = frozenset(),
    is_other_changelog: bool = False,
) -> SchemaPlan:
    """The mirror's schema after the merge; without a mirror, that of the new one.

    ``columns`` is the text of ``frazil.columns``; without it columns are matched by name, once, as
    they are with ``is_other_changelog``, to which the recorded ids do not apply.
    ``pinned`` are the mirror's columns that partitioning or sorting needs. Raises ConfigError for
    settings that do not fit the changelog, UnsupportedSchemaChangeError with every difference that
    the mirror cannot follow.
    """
    roles = plan_columns(changelog, settings)
    sources = _sources(changelog, roles, settings, has_sequence=False)
    if mirror is None:
        return _plan_new(sources, roles, settings)
    known = _known(sources, mirror, columns, settings)
    if is_other_changelog and columns is not None:
        everything = _sources(changelog, roles, settings, has_sequence=True)
        known = _matched_again(known, everything, mirror)
    has_sequence = keeps_sequence(known, roles, mirror)
    sources = _sources(changelog, roles, settings, has_sequence=has_sequence)
    version = settings.format_version if format_version is None else format_version
    target = _target(known, mirror, roles, settings, pinned=pinned, format_version=version)
    following = SchemaFollower(target, last_column_id)
    mappings = _with_flag(following, following.members(sources, mirror.fields), settings)
    wanted = replace(mirror, fields=tuple(each.target for each in mappings))
    following.refused += [
        *_key_refusals(mappings, roles, known, mirror),
        *_clashes(wanted.fields),
    ]
    change = _evolution(following, mirror, wanted, last_column_id, settings)
    changes = _change_messages(following, sentences(change, mirror, wanted))
    if changes and settings.evolution is Evolution.STRICT:
        remedy = "set evolution: permissive, or change the source back"
        what = "the schema has changed, and evolution is strict"
        raise _unsupported(what, changes, settings, remedy)
    plan = _plan(mappings, roles, mirror=wanted, known=known)
    return replace(plan, wanted=wanted if change else None, changes=changes)


def keeps_sequence(known: RecordedColumns, roles: ChangelogColumns, mirror: Schema) -> bool:
    """Whether merges have kept a column of the mirror filled with sequences."""
    here = {each.id for each in mirror.fields}
    return any(
        each.changelog == roles.sequence.id and each.mirror in here and not each.dropped
        for each in known.fields
    )


def _sources(
    changelog: Schema, roles: ChangelogColumns, settings: MergeSettings, *, has_sequence: bool
) -> tuple[Field, ...]:
    """The columns that reach the mirror, in the changelog's order."""
    ids = {each.id for each in source_columns(changelog.fields, settings)}
    if settings.order is Order.PER_KEY or has_sequence:
        # Decides which change is late. With order append it is not read, but still written: if
        # the order is changed back, every row has its own.
        ids.add(roles.sequence.id)
    sources = tuple(each for each in changelog.fields if each.id in ids)
    taken = find_column(sources, DELETED_COLUMN)
    if settings.deletes is Deletes.SOFT and taken is not None:
        message = f"the source column {taken.name!r} is called like the flag of soft deletes."
        next_step = "rename the column at the source, or set deletes: apply"
        raise ConfigError(message, table=str(settings.changelog), next_step=next_step)
    return sources


def _plan_new(
    sources: tuple[Field, ...], roles: ChangelogColumns, settings: MergeSettings
) -> SchemaPlan:
    key = {each.id for each in roles.key}
    fields = [replace(without_defaults(each), required=each.id in key) for each in sources]
    if settings.deletes is Deletes.SOFT:
        # Numbered with the others.
        fields.append(Field(0, DELETED_COLUMN, Primitive.BOOLEAN))
    numbered = number_fields(fields, first_id=FIRST_ID)
    mappings = [
        map_field(source, target) for source, target in zip(sources, numbered, strict=False)
    ]
    mappings += [
        ColumnMapping(each, origin=ColumnOrigin.DELETED) for each in numbered[len(sources) :]
    ]
    if clashes := list(_clashes(numbered)):
        what = "the mirror cannot be created"
        raise _unsupported(what, clashes, settings, "rename one of them at the source")
    schema = Schema(0, numbered, _identifiers(mappings, key))
    return _plan(mappings, roles, mirror=schema, known=RecordedColumns())


def _identifiers(mappings: Sequence[ColumnMapping], key: set[int]) -> frozenset[int]:
    """The mirror's key columns, all of them or none: a part of a key identifies nothing."""
    columns = [
        each.target for each in mappings if each.source is not None and each.source.id in key
    ]
    if any(each.type in _NEVER_IDENTIFY for each in columns):
        return frozenset()
    return frozenset(each.id for each in columns)


def _plan(
    mappings: Sequence[ColumnMapping],
    roles: ChangelogColumns,
    *,
    mirror: Schema,
    known: RecordedColumns,
) -> SchemaPlan:
    mapped = {each.source.id: each.target for each in mappings if each.source is not None}
    key = tuple(mapped[each.id] for each in roles.key)
    deleted = next((each.target for each in mappings if each.origin is ColumnOrigin.DELETED), None)
    columns = RecordedColumns(
        fields=_mapped(mappings, known, mirror),
        key=tuple(each.id for each in key),
        # Kept while deletes are not soft, so that it is not taken for another column.
        deleted=known.deleted if deleted is None else deleted.id,
    )
    flag = next((each for each in mirror.fields if each.id == columns.deleted), None)
    return SchemaPlan(
        mirror=mirror,
        wanted=None,
        columns=encode_columns(columns),
        mappings=tuple(mappings),
        key=key,
        sequence=mapped.get(roles.sequence.id),
        deleted=deleted,
        flag=flag,
    )


def _mapped(
    mappings: Sequence[ColumnMapping], known: RecordedColumns, mirror: Schema
) -> tuple[RecordedField, ...]:
    """The fields mapped now, and those that the source dropped and the mirror kept."""
    attributes = {each.changelog: each.attribute for each in known.fields}
    mapped = {
        each.source.id: each.target.id
        for column in mappings
        for each in column.flatten()
        if each.source is not None
    }
    here = {each.field.id for each in mirror.columns()}
    return (
        *(
            RecordedField(changelog=source, mirror=target, attribute=attributes.get(source))
            for source, target in mapped.items()
        ),
        *(
            replace(each, dropped=True)
            for each in known.fields
            if each.changelog not in mapped and each.mirror in here
        ),
    )


def _known(
    sources: Sequence[Field], mirror: Schema, columns: str | None, settings: MergeSettings
) -> RecordedColumns:
    """The recorded map, or a match by name for a mirror that was created by another engine."""
    if columns is not None:
        return decode_columns(columns, table=str(settings.mirror))
    return RecordedColumns(fields=tuple(_matches(sources, mirror.fields)))


def _matched_again(
    known: RecordedColumns, sources: Sequence[Field], mirror: Schema
) -> RecordedColumns:
    """The map for another changelog: by name; key, flag and what is ours are the mirror's ids."""
    free = [each for each in mirror.fields if each.id != known.deleted]
    matches = tuple(_matches(sources, free))
    matched = {each.mirror for each in matches}
    # An id that no changelog has: the column is ours, but no longer mapped.
    left = (
        replace(each, changelog=-each.mirror) for each in known.fields if each.mirror not in matched
    )
    return replace(known, fields=(*matches, *left))


def _matches(sources: Sequence[Field], targets: Sequence[Field]) -> Iterator[RecordedField]:
    for source in sources:
        target = find_column(targets, source.name)
        if target is not None:
            yield RecordedField(changelog=source.id, mirror=target.id)
            yield from _matches_inside(source.type, target.type)


def _matches_inside(source: Type, target: Type) -> Iterator[RecordedField]:
    """Match by name; elements, keys and values have the same names in every list and map."""
    if type(source) is type(target):
        yield from _matches(children(source), children(target))


def _target(
    known: RecordedColumns,
    mirror: Schema,
    roles: ChangelogColumns,
    settings: MergeSettings,
    *,
    pinned: frozenset[int],
    format_version: int,
) -> KnownColumns:
    ours = frozenset(each.mirror for each in known.fields)
    return KnownColumns(
        mirror_ids={each.changelog: each.mirror for each in known.fields},
        ours=ours,
        dropped=frozenset(each.mirror for each in known.fields if each.dropped),
        pinned=pinned,
        key=frozenset(each.id for each in roles.key),
        flag=_flag(known, mirror, ours) if settings.deletes is Deletes.SOFT else None,
        on_drop=settings.on_drop,
        format_version=format_version,
    )


def _flag(known: RecordedColumns, mirror: Schema, ours: frozenset[int]) -> int | None:
    """The column that says whether a row is deleted: as recorded, else by its name."""
    if any(each.id == known.deleted for each in mirror.fields):
        return known.deleted
    free = (each for each in mirror.fields if each.id not in ours)
    found = find_column(free, DELETED_COLUMN)
    return None if found is None or found.type is not Primitive.BOOLEAN else found.id


def _with_flag(
    following: SchemaFollower, mappings: tuple[ColumnMapping, ...], settings: MergeSettings
) -> tuple[ColumnMapping, ...]:
    has_flag = any(each.origin is ColumnOrigin.DELETED for each in mappings)
    if settings.deletes is not Deletes.SOFT or has_flag:
        return mappings
    new = following.add(Field(0, DELETED_COLUMN, Primitive.BOOLEAN))
    return (*mappings, ColumnMapping(new, origin=ColumnOrigin.DELETED))


def _key_refusals(
    mappings: Sequence[ColumnMapping],
    roles: ChangelogColumns,
    known: RecordedColumns,
    mirror: Schema,
) -> Iterator[str]:
    names = {each.id: each.name for each in mirror.fields}
    mapped = {each.source.id: each.target for each in mappings if each.source is not None}
    key = [mapped[each.id] for each in roles.key]
    new = [each.name for each in key if each.id not in names]
    yield from (f"the key column {name} is not in the mirror" for name in new)
    before = frozenset(known.key) or mirror.identifier_ids
    if not new and before and before != {each.id for each in key}:
        was = ", ".join(sorted(names.get(each, f"field {each}") for each in before))
        becomes = ", ".join(sorted(each.name for each in key))
        yield f"the key changes from ({was}) to ({becomes})"


def _clashes(fields: Sequence[Field], where: str = "") -> Iterator[str]:
    """Names that differ in case only: Spark ignores the case."""
    by_name: dict[str, list[str]] = {}
    for each in fields:
        by_name.setdefault(each.name.lower(), []).append(f"{where}{each.name}")
        yield from _clashes(children(each.type), f"{where}{each.name}.")
    for names in by_name.values():
        if len(names) > 1:
            yield f"{' and '.join(names)} would be one column to Spark"


def _evolution(
    following: SchemaFollower,
    mirror: Schema,
    wanted: Schema,
    last_column_id: int,
    settings: MergeSettings,
) -> SchemaChange:
    """The steps; raises with all impossible ones and everything else that is refused."""
    refused = list(following.refused)
    change, cause = None, None
    version = following.target.format_version
    try:
        change = plan_evolution(
            mirror, wanted, last_column_id=last_column_id, format_version=version
        )
    except UnsupportedSchemaChangeError as error:
        cause = error
        refused.append(error.message.removeprefix("the schema cannot follow: "))
    if change is None or refused:
        what = "the mirror cannot follow the changelog"
        raise _unsupported(what, refused, settings, _REFUSED.format(settings.mirror)) from cause
    return change


def _change_messages(following: SchemaFollower, steps: Sequence[str]) -> tuple[str, ...]:
    """Messages for the operator: the steps, and what no step shows."""
    return (
        *steps,
        *(f"{name} was dropped at the source and is kept" for name in following.kept),
        *(
            f"{name} loses its default, which tables of this format version do not keep: rows "
            "merged before show null"
            for name in following.without_default
        ),
    )


def _unsupported(
    what: str, differences: Sequence[str], settings: MergeSettings, next_step: str
) -> UnsupportedSchemaChangeError:
    message = f"{what}: {'; '.join(differences)}."
    return UnsupportedSchemaChangeError(message, table=str(settings.mirror), next_step=next_step)
