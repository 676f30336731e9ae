"""Mirrors against a replay in dictionaries: histories written by chance, performed for real.

A history that fails is named by its seed; ``python -m tests.support.merge.hunt --shrink`` makes it
small, and it stays with the others in ``tests/golden/merge-replays``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.support.lake.catalogs import Kind
from tests.support.merge.histories import KEYS, SHAPES, make_history
from tests.support.merge.model import Compact, Crash, Lose, dump, load
from tests.support.merge.world import World
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.support.lake.catalogs import LakeCase
    from tests.support.merge.model import History

pytestmark = pytest.mark.spark

SEEDS = range(SHAPES)
# Together they have every feature that any of the seeds has.
CI_SEEDS = frozenset({11, 14, 18, 22, 24, 25, 27, 28, 29, 31, 32, 45})
REPLAYS = sorted((Path(__file__).parents[2] / "golden" / "merge-replays").glob("*.json"))


@pytest.fixture
def perform(
    spark: SparkSession, lake_of: Callable[[Kind], LakeCase], tmp_path: Path
) -> Callable[[History], None]:
    """Performs a history on tables of its own and compares what came of it."""
    case = lake_of(Kind.SQLITE_FILE)

    def performed(history: History, *, check_merges: bool = False) -> None:
        name = f"t_{uuid4().hex[:12]}"
        world = World(spark, case.lake, case.catalog, history, tmp_path, name)
        world.run(check_merges=check_merges)

    return performed


@pytest.mark.fault("E2", "E3", "E4", "E5", "T2", "N6", "N13")
@pytest.mark.parametrize("seed", sampled(SEEDS, ci=CI_SEEDS))
def test_three_readers_see_what_a_replay_in_dictionaries_leaves(
    seed: int, perform: Callable[[History], None]
) -> None:
    perform(make_history(seed))


@pytest.mark.parametrize("file", REPLAYS, ids=lambda file: file.stem)
def test_a_history_that_once_failed_does_not_fail_again(
    file: Path, perform: Callable[..., None]
) -> None:
    perform(load(file.read_text()), check_merges=True)


def features(history: History) -> set[tuple[object, ...]]:
    """What distinguishes one history from another: kind of table, policies, steps and faults."""
    types = {column.id: column.type for column in history.columns}
    found: set[tuple[object, ...]] = {
        ("key", *(types[number] for number in history.key)),
        ("table", history.format_version, bool(history.partition_by)),
        ("policy", history.deletes, history.order),
        ("on_drop", history.on_drop),
    }
    for step in history.steps:
        match step:
            case Lose():
                found.add(("lose", step.what))
            case Crash():
                found.add(("crash", step.failpoint))
            case Compact():
                found.add(("compact", step.how))
            case _:
                found.add(("step", type(step)))
    return found


def test_the_seeds_of_ci_have_every_feature() -> None:
    histories = {seed: features(make_history(seed)) for seed in SEEDS}
    everything = set().union(*histories.values())
    assert set().union(*(histories[seed] for seed in CI_SEEDS)) == everything


def test_the_seeds_have_every_key_in_every_kind_of_table() -> None:
    histories = [make_history(seed) for seed in SEEDS]
    shapes = set()
    for each in histories:
        types = {column.id: column.type for column in each.columns}
        key = tuple(types[number] for number in each.key)
        shapes.add((key, each.format_version, bool(each.partition_by)))
    assert len(histories) >= 40
    assert shapes == {
        (key, version, is_partitioned)
        for key in KEYS.values()
        for version in (2, 3)
        for is_partitioned in (False, True)
    }


def test_the_seeds_have_every_policy_and_every_kind_of_fault() -> None:
    histories = [make_history(seed) for seed in SEEDS]
    steps = [step for each in histories for step in each.steps]
    assert {each.deletes for each in histories} == {"apply", "soft", "ignore"}
    assert {each.order for each in histories} == {"append", "per_key"}
    assert {each.on_drop for each in histories} == {"keep", "drop"}
    assert len({type(step) for step in steps}) == 10
    assert {step.what for step in steps if isinstance(step, Lose)} >= {"head", "runs", "run-bit"}
    assert len({step.failpoint for step in steps if isinstance(step, Crash)}) >= 3


def test_a_history_is_the_same_for_the_same_seed_and_survives_its_file() -> None:
    history = make_history(7)
    assert make_history(7) == history
    assert load(dump(history)) == history
