"""Compactions between merges: the mirror is what the model says after every landing."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.support.lake.catalogs import Kind
from tests.support.maintain.compacting import CompactingWorld
from tests.support.merge.histories import SHAPES, make_history
from tests.support.merge.world import World
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.lake.catalogs import LakeCase

pytestmark = pytest.mark.spark

# Both format versions, with partitions and without, every order and policy of deletes.
CI_SEEDS = frozenset({15, 25, 38})


@pytest.fixture
def compacted(
    spark: SparkSession, lake_of: Callable[[Kind], LakeCase], tmp_path: Path
) -> Callable[[int], CompactingWorld]:
    """A history, not yet performed."""
    case = lake_of(Kind.SQLITE_FILE)

    def made(seed: int) -> CompactingWorld:
        name = f"c_{uuid4().hex[:12]}"
        history = make_history(seed)
        return CompactingWorld(World(spark, case.lake, case.catalog, history, tmp_path, name), seed)

    return made


@pytest.mark.parametrize("seed", sampled(range(SHAPES), ci=CI_SEEDS))
def test_mirrors_are_what_the_model_says_after_every_landing(
    seed: int, compacted: Callable[[int], CompactingWorld]
) -> None:
    world = compacted(seed)
    world.run()
    assert world.landed or world.abandoned
