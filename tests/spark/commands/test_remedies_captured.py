"""A resync heals every damage to the tables of a captured database, and the mirror goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pytest

from frazil import errors
from frazil.merge.index_operations import verify_index
from frazil.pipeline.tables.merge_settings import load_merges
from tests.support.ingest.captured import captured_database
from tests.support.lake.damages import Damaging

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from frazil.demo.services import Postgres
    from tests.support.ingest.captured import CapturedDatabase

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.fault("N32", "N57")]

Damage = Callable[[Damaging], None]

# What was done to the tables of a captured database, and what the next merge says to it; the
# damaged index is rebuilt without a word from anybody.
CAPTURED: dict[str, tuple[Damage, type[errors.FrazilError] | None]] = {
    "doubled": (Damaging.double_a_row, errors.DuplicateKeyError),
    "by_equality": (Damaging.delete_by_equality, errors.EqualityDeletesError),
    "lost_files": (Damaging.lose_data_and_index, errors.StorageError),
    "lost_runs": (Damaging.lose_runs, None),
    "avro": (Damaging.write_avro, errors.UnsupportedSchemaChangeError),
    "rolled_back": (Damaging.roll_back_and_expire, errors.RolledBackError),
    "unmarked": (Damaging.unmark, errors.MarkerLostError),
    "replaced": (Damaging.replace_mirror, errors.RolledBackError),
    "overwritten": (Damaging.overwrite_changes, errors.ForeignChangeError),
    "changelog_dropped": (Damaging.drop_changelog, errors.TableNotFoundError),
    "changelog_back": (Damaging.roll_back_changelog, errors.RolledBackError),
    "expired": (lambda _: None, errors.PositionLostError),
}


# The same for mirrors whose rows outlive a copy; the first word says what becomes of deletes.
KEPT: dict[str, tuple[Damage, type[errors.FrazilError] | None]] = {
    "soft_doubled": (Damaging.double_a_row, errors.DuplicateKeyError),
    "soft_lost": (Damaging.lose_data_and_index, errors.StorageError),
    # The index tells what to delete, and nobody reads the files before the copy comes.
    "soft_files": (Damaging.lose_data, None),
    "soft_back": (Damaging.roll_back, errors.RolledBackError),
    "soft_sound": (lambda _: None, None),
    "ignore_equality": (Damaging.delete_by_equality, errors.EqualityDeletesError),
    "ignore_overwritten": (Damaging.overwrite_changes, errors.ForeignChangeError),
}


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CapturedDatabase]:
    """A table for each damage, merged into twice."""
    folder = tmp_path_factory.mktemp("damaged")
    index = {"index": {"young_entries": 1, "cache_dir": str(folder / "cache")}}
    with captured_database(spark, postgres, folder, mirror=index) as made:
        for table in CAPTURED:
            made.run(
                f"create table {table} (id int primary key, word text)",
                f"insert into {table} select i, 'first' from generate_series(1, 4) i",
            )
        made.catch_up()
        change(made, "second")
        made.catch_up()
        yield made


def change(world: CapturedDatabase, word: str, tables: Iterable[str] = tuple(CAPTURED)) -> None:
    for table in tables:
        world.run(f"update {table} set word = '{word}' where id in (1, 2)")


def merged(world: CapturedDatabase, table: str) -> type[errors.FrazilError] | None:
    try:
        world.merge(table)
    except errors.FrazilError as error:
        return type(error)
    return None


def damaging(world: CapturedDatabase, table: str) -> Damaging:
    names = world.names(table)
    return Damaging(world.spark, world.lake, names.changelog, names.mirror)


def test_a_resync_heals_whatever_was_done_to_a_mirror_or_its_changelog(
    world: CapturedDatabase,
) -> None:
    damaged = {table: damaging(world, table) for table in CAPTURED}
    for table, (damage, _) in CAPTURED.items():
        damage(damaged[table])
    change(world, "third")
    world.ingest()
    # A position is lost with the snapshot after it.
    change(world, "fourth", ["expired"])
    world.ingest()
    damaged["expired"].expire_changes()
    found = {table: merged(world, table) for table in CAPTURED if world.has_changelog(table)}
    expected = {table: error for table, (_, error) in CAPTURED.items()}
    assert found == {table: expected[table] for table in found}
    world.resync(*CAPTURED)
    world.ingest()
    for round_ in ("healed", "went on"):
        assert {table: merged(world, table) for table in CAPTURED} == dict.fromkeys(CAPTURED)
        for table in CAPTURED:
            rows = sorted(world.mirror_rows(table), key=lambda row: row["id"])
            assert rows == world.query(f"select * from {table} order by id"), (round_, table)
        if round_ == "healed":
            change(world, round_)
            world.ingest()
    (one,) = load_merges(world.lake, world.config, [str(damaged["doubled"].mirror)]).values()
    assert verify_index(world.spark, world.lake, one).is_sound


@pytest.fixture(scope="module")
def kept(
    spark: SparkSession, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CapturedDatabase]:
    """A table for each damage, merged into twice; in each a row was deleted."""
    folder = tmp_path_factory.mktemp("kept")
    tables = [{"mirror": f"public.{each}", "deletes": each.partition("_")[0]} for each in KEPT]
    with captured_database(spark, postgres, folder, tables=tables) as made:
        for table in KEPT:
            made.run(
                f"create table {table} (id int primary key, word text)",
                f"insert into {table} select i, 'first' from generate_series(1, 4) i",
            )
        made.catch_up()
        for table in KEPT:
            made.run(f"delete from {table} where id = 4")
        made.catch_up()
        yield made


def test_a_resync_heals_mirrors_whose_rows_outlive_it_and_keeps_what_was_deleted(
    kept: CapturedDatabase,
) -> None:
    world = kept
    for table, (damage, _) in KEPT.items():
        damage(damaging(world, table))
    change(world, "damaged", KEPT)
    world.ingest()
    expected = {table: error for table, (_, error) in KEPT.items()}
    assert {table: merged(world, table) for table in KEPT} == expected
    world.resync(*KEPT)
    world.ingest()
    for round_ in ("healed", "went on"):
        assert {table: merged(world, table) for table in KEPT} == dict.fromkeys(KEPT)
        for table in KEPT:
            rows = sorted(world.mirror_rows(table), key=lambda row: row["id"])
            marks = [row.pop("cdc_deleted", None) for row in rows]
            living = world.query(f"select * from {table} order by id")
            assert rows == [*living, {"id": 4, "word": "first"}], (round_, table)
            soft = table.startswith("soft")
            assert marks == ([False, False, False, True] if soft else [None] * 4), table
        if round_ == "healed":
            change(world, round_, KEPT)
            world.ingest()


# The errors whose remedies the tests of this file carry out.
EXECUTED = {kind for table in (CAPTURED, KEPT) for _, kind in table.values() if kind is not None}
