"""Mirrors of every kind of table, read by Trino, which shares nothing with us."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from tests.spark.conftest import lake_config, spark
from tests.support.lake.catalogs import Kind, lake_of, services
from tests.support.lake.mirrored import Mirrored
from tests.support.lake.trino import TrinoError, from_json, trino
from tests.support.merge.comparing import MirrorReader, compare
from tests.support.merge.histories import KEYS, SHAPES, make_history
from tests.support.merge.model import Lose, Upgrade
from tests.support.merge.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from frazil.demo.services import ObjectStore, RestCatalog
    from frazil.model.table_name import TableName
    from tests.support.lake.catalogs import LakeCase
    from tests.support.lake.trino import Trino
    from tests.support.merge.comparing import MirrorColumn
    from tests.support.merge.model import History

__all__ = ["lake_config", "lake_of", "services", "spark"]

pytestmark = [
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

# Seeds of the model test whose mirrors have format version 2.
SEEDS = [seed for seed in range(SHAPES) if make_history(seed).format_version == 2]


@pytest.fixture(scope="module")
def reader(s3_catalog: RestCatalog, object_store: ObjectStore) -> Iterator[Trino]:
    with trino(s3_catalog, object_store) as server:
        yield server


@dataclass(frozen=True)
class ReadRows:
    """What Trino returned, as the comparison takes it."""

    column_names: list[str]
    rows: list[dict[str, Any]]

    def to_pylist(self) -> list[dict[str, Any]]:
        return self.rows


def read_rows(reader: Trino, table: TableName, columns: Sequence[MirrorColumn]) -> ReadRows:
    """Every row; Trino has the names of columns in lower case."""
    found = reader.query(f"select * from {quoted(table)}")
    by_lower_case = {each.name.lower(): each for each in columns}
    named = [by_lower_case[name] for name in found.column_names]
    rows = [
        {each.name: from_json(value, each.type) for each, value in zip(named, row, strict=True)}
        for row in found.rows
    ]
    return ReadRows([each.name for each in named], rows)


def quoted(table: TableName) -> str:
    return f'lake."{table.namespace[0]}"."{table.table}"'


def readable(history: History) -> History:
    """Without what happens to local files, and without the step to format version 3."""
    steps = tuple(each for each in history.steps if not isinstance(each, Lose | Upgrade))
    return replace(history, steps=steps)


def test_the_seeds_have_every_key_partitioned_or_not() -> None:
    histories = [make_history(seed) for seed in SEEDS]
    shapes = set()
    for each in histories:
        types = {column.id: column.type for column in each.columns}
        shapes.add((tuple(types[number] for number in each.key), bool(each.partition_by)))
    assert shapes == {(key, is_split) for key in KEYS.values() for is_split in (False, True)}


@pytest.mark.parametrize("seed", SEEDS)
def test_trino_sees_what_a_replay_in_dictionaries_leaves(
    seed: int,
    reader: Trino,
    spark: SparkSession,
    lake_of: Callable[[Kind], LakeCase],
    tmp_path: Path,
) -> None:
    case = lake_of(Kind.REST_S3)
    history = readable(make_history(seed))
    world = World(spark, case.lake, case.catalog, history, tmp_path, f"t_{uuid4().hex[:12]}")
    for step in history.steps:
        world.perform(step)
    mirror = case.lake.open(world.mirror_name)
    columns = MirrorReader(mirror, world.replay, world.changelog.fields).columns
    found = read_rows(reader, world.mirror_name, columns)
    assert not compare(world.replay, columns, found)
    assert reader.query(f"select count(*) from {quoted(world.mirror_name)}").rows == [
        [len(world.replay.rows)]
    ]


def test_format_version_3_is_read_until_rows_are_deleted_in_vectors(
    reader: Trino, spark: SparkSession, lake_of: Callable[[Kind], LakeCase]
) -> None:
    """What docs/how-to/query.md says of this release; a later one may read it."""
    table = Mirrored.create(spark, lake_of(Kind.REST_S3).lake, format_version=3)
    table.change_and_merge(dict.fromkeys(range(10), "first"))
    count = f"select count(*) from {quoted(table.settings.mirror)}"
    assert reader.query(count).rows == [[10]]
    table.change_and_merge({3: None, 4: "second"})
    with pytest.raises(TrinoError, match="PUFFIN"):
        reader.query(f"select name from {quoted(table.settings.mirror)}")
