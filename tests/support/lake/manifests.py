"""Manifests of key indexes: one that has something of everything, and any that can be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from frazil.model.key_index import (
    DeleteKind,
    DeletePointer,
    IndexedFile,
    IndexKey,
    IndexManifest,
    IndexRun,
    RunBlob,
    RunPart,
    plan_key_hash,
)
from frazil.model.schema.types import Decimal, Fixed, Primitive

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

    from frazil.model.schema.types import Scalar

TABLE = "s3://lake/users"

_VECTOR = DeletePointer(
    kind=DeleteKind.VECTOR,
    location=f"{TABLE}/data/day=2/d.puffin",
    file_size=310,
    rows=7,
    spec_id=1,
    partition='{"1000":2}',
    data_file=f"{TABLE}/data/day=2/b.parquet",
    offset=4,
    length=52,
)
_SHARED = DeletePointer(
    kind=DeleteKind.POSITIONS,
    location=f"{TABLE}/data/old.parquet",
    file_size=900,
    rows=3,
    spec_id=0,
    partition="{}",
)

SAMPLE = IndexManifest(
    table_uuid="6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    snapshot_id=4358109269873137077,
    generation="0190163d-8694-739b-aea5-966c26f8ad91",
    key=IndexKey(
        field_ids=(1, 4),
        types=(Primitive.LONG, Decimal(10, 2)),
        hash=plan_key_hash((Primitive.LONG, Decimal(10, 2))),
    ),
    next_ordinal=7,
    files=(
        IndexedFile(
            ordinal=2,
            location=f"{TABLE}/data/day=2/b.parquet",
            rows=1000,
            size=40_960,
            spec_id=1,
            partition='{"1000":2}',
            deletes=(_VECTOR,),
        ),
        IndexedFile(
            ordinal=6,
            location=f"{TABLE}/data/a.parquet",
            rows=50,
            size=4096,
            spec_id=0,
            partition="{}",
            deletes=(_SHARED,),
        ),
    ),
    runs=(
        IndexRun(
            "5f0c",
            1,
            (
                RunPart(
                    f"{TABLE}/_index/5f0c-00000.puffin",
                    1500,
                    (RunBlob(0, 4, 600, 480, 3735928559), RunBlob(1, 604, 610, 490, 11)),
                ),
            ),
        ),
    ),
    young_entries=2,
    idle_deletes=1,
    sequence_type=Primitive.STRING,
)

NATURALS = st.integers(0, 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
LOCATIONS = st.builds(
    lambda folder, name: f"{folder}{name}", st.sampled_from(["", "s3://b/data/", "/é/"]), TEXTS
)
TYPES: SearchStrategy[Scalar] = st.one_of(
    st.sampled_from([Primitive.INT, Primitive.LONG, Primitive.UUID, Primitive.STRING]),
    st.builds(Fixed, st.integers(1, 99)),
    st.integers(1, 38).flatmap(lambda scale: st.builds(Decimal, st.just(38), st.just(scale))),
)


@st.composite
def keys(draw: DrawFn) -> IndexKey:
    field_ids = draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=3, unique=True))
    types = tuple(draw(TYPES) for _ in field_ids)
    return IndexKey(field_ids=tuple(field_ids), types=types, hash=plan_key_hash(types))


@st.composite
def deletes(draw: DrawFn, data_file: str) -> DeletePointer:
    kind = draw(st.sampled_from(DeleteKind))
    is_vector = kind is DeleteKind.VECTOR
    return DeletePointer(
        kind=kind,
        location=draw(LOCATIONS),
        file_size=draw(NATURALS),
        rows=draw(NATURALS),
        spec_id=draw(st.integers(0, 3)),
        partition=draw(st.sampled_from(["{}", '{"1000":"ä"}'])),
        data_file=data_file if is_vector or draw(st.booleans()) else None,
        offset=draw(NATURALS) if is_vector else None,
        length=draw(NATURALS) if is_vector else None,
    )


@st.composite
def files(draw: DrawFn, ordinal: int, location: str) -> IndexedFile:
    return IndexedFile(
        ordinal=ordinal,
        location=location,
        rows=draw(NATURALS),
        size=draw(NATURALS),
        spec_id=draw(st.integers(0, 3)),
        partition=draw(st.sampled_from(["{}", '{"1000":1}'])),
        deletes=tuple(draw(st.lists(deletes(location), max_size=2))),
    )


@st.composite
def runs(draw: DrawFn, name: str) -> IndexRun:
    bits = draw(st.integers(0, 32))
    buckets = draw(st.lists(st.integers(0, 2**bits - 1), max_size=4, unique=True))
    parts: list[list[RunBlob]] = [[] for _ in range(draw(st.integers(1, 3)))]
    for bucket in buckets:
        size = st.integers(0, 2**40)
        blob = RunBlob(
            bucket, draw(size), draw(size), 1 + draw(size), draw(st.integers(0, 2**32 - 1))
        )
        draw(st.sampled_from(parts)).append(blob)
    return IndexRun(
        name, bits, tuple(RunPart(draw(LOCATIONS), 2**42, tuple(part)) for part in parts)
    )


@st.composite
def manifests(draw: DrawFn) -> IndexManifest:
    ordinals = draw(st.lists(st.integers(0, 2**31 - 1), max_size=4, unique=True))
    count = len(ordinals)
    locations = draw(st.lists(LOCATIONS, min_size=count, max_size=count, unique=True))
    names = draw(st.lists(TEXTS, max_size=2, unique=True))
    next_ordinal = max(ordinals, default=-1) + 1
    firsts = st.integers(0, next_ordinal)
    return IndexManifest(
        table_uuid=draw(TEXTS),
        snapshot_id=draw(st.integers(-(2**63), 2**63 - 1)),
        generation=draw(TEXTS),
        key=draw(keys()),
        next_ordinal=next_ordinal,
        files=tuple(draw(files(*each)) for each in zip(ordinals, locations, strict=True)),
        runs=tuple(replace(draw(runs(each)), first_ordinal=draw(firsts)) for each in names),
        young_entries=draw(NATURALS),
        idle_deletes=draw(NATURALS),
        sequence_type=draw(st.none() | TYPES),
    )
