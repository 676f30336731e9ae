"""Remedies executed as they are printed, in pipelines without a source.

The mirror is built from its changelog. Each remedy ends in a mirror that is right and goes on.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

import frazil
from frazil import errors
from frazil.config import load_config
from frazil.pipeline.tables.merge_settings import load_merges
from tests.support.lake.damages import Damaging
from tests.support.merge.shop import MergeShop
from tests.support.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


pytestmark = [pytest.mark.spark, pytest.mark.fault("N32", "N57")]

Damage = Callable[[Damaging], None]

PRINTED = {
    "doubled": (Damaging.double_a_row, errors.DuplicateKeyError),
    "equality deletes": (Damaging.delete_by_equality, errors.EqualityDeletesError),
    "rolled back": (Damaging.roll_back, errors.RolledBackError),
    "rolled back and expired": (Damaging.roll_back_and_expire, errors.RolledBackError),
    "unmarked": (Damaging.unmark, errors.MarkerLostError),
    "overwritten": (Damaging.overwrite_changes, errors.ForeignChangeError),
    "changelog rolled back": (Damaging.roll_back_changelog, errors.RolledBackError),
    "changelog made again": (Damaging.make_changelog_again, errors.TableReplacedError),
}


def filled(spark: SparkSession, folder: Path) -> tuple[MergeShop, Damaging]:
    shop = MergeShop.open(spark, folder)
    shop.change("users", *((each, "first", "INSERT") for each in (1, 2, 3)))
    shop.merge("users")
    shop.change("users", (1, "second", "UPDATE"), (2, "second", "UPDATE"))
    shop.merge("users")
    (settings,) = load_merges(shop.lake, shop.config, ["public.users"]).values()
    return shop, Damaging(spark, shop.lake, settings.changelog, settings.mirror)


def lose_position(shop: MergeShop, damaged: Damaging) -> None:
    for word in ("lost", "third"):
        shop.change("users", (1, word, "UPDATE"))
    damaged.expire_changes()


def repeat_a_sequence(shop: MergeShop, _: Damaging) -> None:
    shop.change("users", (1, "third", "UPDATE"))
    shop._at -= 1
    shop.change("users", (1, "wrong", "UPDATE"))


def leave_out_the_key(shop: MergeShop, _: Damaging) -> None:
    shop.change("users", (1, "third", "UPDATE"), (None, "wrong", "INSERT"))  # type: ignore[arg-type]


def correct(damaged: Damaging) -> None:
    damaged.sql("delete from {changelog} where name = 'wrong'")


def nothing_to_correct(_: Damaging) -> None:
    pass


CORRECTED = [
    (lose_position, errors.PositionLostError, nothing_to_correct),
    (repeat_a_sequence, errors.DuplicateKeyError, correct),
    (leave_out_the_key, errors.NullKeyError, correct),
]


@pytest.mark.parametrize(("damage", "kind", "by_hand"), CORRECTED)
def test_changes_that_cannot_be_merged_are_corrected_and_the_mirror_is_built_again(
    spark: SparkSession,
    tmp_path: Path,
    *,
    damage: Callable[[MergeShop, Damaging], None],
    kind: type[errors.FrazilError],
    by_hand: Damage,
) -> None:
    shop, damaged = filled(spark, tmp_path)
    damage(shop, damaged)
    with pytest.raises(kind) as refused:
        shop.merge("users")
    by_hand(damaged)
    obey(shop, refused.value)
    assert shop.rows("users") == {1: "third", 2: "second", 3: "first"}
    shop.change("users", (2, None, "DELETE"))
    shop.merge("users")
    assert shop.rows("users") == {1: "third", 3: "first"}


def test_a_mirror_that_cannot_follow_is_dropped_and_made_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop, damaged = filled(spark, tmp_path)
    damaged.sql("alter table {mirror} drop column name")
    damaged.sql("alter table {mirror} add column name int")
    shop.change("users", (1, "third", "UPDATE"))
    with pytest.raises(errors.UnsupportedSchemaChangeError, match="drop the mirror"):
        shop.merge("users")
    damaged.sql("drop table {mirror}")
    shop.merge("users")
    assert shop.rows("users") == {1: "third", 2: "second", 3: "first"}


def leave_out_columns(damaged: Damaging) -> None:
    """A change of the row 2 that does not carry its name."""
    damaged.sql("alter table {changelog} add column cdc_unchanged array<int>")
    damaged.sql("insert into {changelog} values (2, null, 'UPDATE', '000000000099', array(2))")


def test_a_row_that_another_engine_removed_is_there_again_for_changes_that_need_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop, damaged = filled(spark, tmp_path)
    damaged.sql("delete from {mirror} where id = 2")
    leave_out_columns(damaged)
    with pytest.raises(errors.MissingImageError) as refused:
        shop.merge("users")
    obey(shop, refused.value)
    assert shop.rows("users") == {1: "second", 2: "second", 3: "first"}
    damaged.sql("insert into {changelog} values (1, null, 'DELETE', '000000000100', null)")
    shop.merge("users")
    assert shop.rows("users") == {2: "second", 3: "first"}


def test_the_order_that_the_library_asks_for_is_one_that_helps(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop, damaged = filled(spark, tmp_path)
    prefix = f"{shop.catalog}.public"

    def merge(order: str) -> None:
        frazil.merge_table(
            spark,
            changelog=f"{prefix}.users_changelog",
            mirror=f"{prefix}.users",
            keys=["id"],
            order=order,
            cache_dir=tmp_path / "cache",
        )

    shop._at = 0
    shop.change("users", (1, "late", "UPDATE"))
    with pytest.raises(errors.OutOfOrderError, match="set order: per_key"):
        merge("append")
    merge("per_key")
    assert shop.rows("users") == {1: "second", 2: "second", 3: "first"}
    leave_out_columns(damaged)
    with pytest.raises(errors.MissingImageError, match="set order: append"):
        merge("per_key")
    merge("append")
    assert shop.rows("users") == {1: "second", 2: "second", 3: "first"}


def test_the_column_of_the_operations_is_named_and_the_merge_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop, _ = filled(spark, tmp_path)
    right = shop.document.read_text()
    shop.document.write_text(right.replace("[id]}", "[id], operation: name}"))
    shop.config = load_config(shop.document, environ={}).config
    shop.change("users", (1, "third", "UPDATE"))
    with pytest.raises(errors.MalformedChangeError, match=r"right column in tables\[\]\.operation"):
        shop.merge("users")
    shop.document.write_text(right.replace("[id]}", "[id], operation: cdc_operation}"))
    shop.config = load_config(shop.document, environ={}).config
    shop.merge("users")
    assert shop.rows("users") == {1: "third", 2: "second", 3: "first"}


# The errors whose remedies the tests of this file carry out.
EXECUTED: set[type[errors.FrazilError]] = {kind for _, kind in PRINTED.values()}
EXECUTED |= {kind for _, kind, _ in CORRECTED}
EXECUTED |= {errors.MissingImageError, errors.OutOfOrderError, errors.MalformedChangeError}


def obey(shop: MergeShop, error: errors.FrazilError) -> None:
    """Do what the message says, to the letter; a question is answered with yes."""
    step = error.next_step or ""
    command = re.search(r"frazil ((resync|position set) .*)", step)
    if command is None:
        shop.spark.sql(step)
        return
    words = shlex.split(command[1])
    yes = ["--yes"] if words[0] == "position" else []
    finished = shop.run_here(*words, *yes)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("case", PRINTED)
def test_the_command_in_the_message_heals_a_mirror_of_a_pipeline_without_a_source(
    spark: SparkSession, tmp_path: Path, case: str
) -> None:
    damage, kind = PRINTED[case]
    shop, damaged = filled(spark, tmp_path)
    damage(damaged)
    shop.change("users", (1, "third", "UPDATE"), (4, "third", "INSERT"))
    with pytest.raises(kind) as refused:
        shop.merge("users")
    obey(shop, refused.value)
    shop.merge("users")
    foreign = {60, 61} if case == "rolled back and expired" else set()
    if case == "equality deletes":
        # What another engine deleted stays deleted; with a resync it would be back.
        assert shop.rows("users") == {1: "third", 3: "first", 4: "third"}
        return
    rows = shop.rows("users")
    assert {key: rows[key] for key in rows.keys() - foreign} == {
        **({} if case == "changelog rolled back" else {2: "second"}),
        **({2: "first"} if case == "changelog rolled back" else {}),
        1: "third",
        3: "first",
        4: "third",
    }
    shop.change("users", (2, "fourth", "UPDATE"), (3, None, "DELETE"))
    assert len(shop.merge("users").commits) == 1
    assert shop.rows("users").keys() - foreign == {1, 2, 4}


@pytest.mark.parametrize(
    "case",
    sampled(
        ["doubled", "rolled back", "unmarked", "overwritten", "clash"], ci={"rolled back", "clash"}
    ),
)
def test_users_of_the_library_get_a_remedy_that_they_have(
    spark: SparkSession, tmp_path: Path, case: str
) -> None:
    shop, damaged = filled(spark, tmp_path)
    prefix = f"{shop.catalog}.public"

    def merge(*, rebuild: bool = False) -> None:
        frazil.merge_table(
            spark,
            changelog=f"{prefix}.users_changelog",
            mirror=f"{prefix}.users",
            keys=["id"],
            order="append",
            cache_dir=tmp_path / "cache",
            rebuild=rebuild,
        )

    if case == "clash":
        kind: type[errors.FrazilError] = errors.DuplicateKeyError
        for word in ("third", "other"):
            shop.change("users", (1, word, "UPDATE"))
            shop._at -= 1
        shop._at += 1
    else:
        damage, kind = PRINTED[case]
        damage(damaged)
        shop.change("users", (1, "third", "UPDATE"))
    with pytest.raises(kind, match=r"merge_table\(\.\.\., rebuild=True\)"):
        merge()
    if case == "clash":
        # The correction is a change of the changelog that no merge follows by itself.
        damaged.sql("delete from {changelog} where name = 'other'")
        with pytest.raises(errors.ForeignChangeError, match=r"rebuild=True"):
            merge()
    merge(rebuild=True)
    assert shop.rows("users") == {1: "third", 2: "second", 3: "first"}
    shop.change("users", (2, None, "DELETE"))
    merge()
    assert shop.rows("users") == {1: "third", 3: "first"}


def test_a_table_of_another_owner_is_not_taken_over(spark: SparkSession, tmp_path: Path) -> None:
    shop = MergeShop.open(spark, tmp_path)
    name = f"{shop.catalog}.public.users"
    spark.sql(f"create table {name} (id bigint, name string) using iceberg")
    spark.sql(f"insert into {name} values (1, 'theirs')")
    shop.change("users", (1, "ours", "INSERT"))
    finished = shop.run_here("resync", "public.users")
    assert finished.returncode != 0
    assert "FRZ-LAK-09" in finished.stderr
    assert shop.rows("users") == {1: "theirs"}
