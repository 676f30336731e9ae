"""Queries survive being pasted into a shell."""

from __future__ import annotations

import ast
import shlex
from typing import TYPE_CHECKING

import pytest

from frazil.demo.tour.lake_folder import LakeFolder, pasted_queries

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["plain", "with a space", "it's"])
def test_every_query_has_the_location_of_the_table(tmp_path: Path, name: str) -> None:
    folder = LakeFolder(tmp_path / name)
    orders = f"{folder.path}/lake/shop/orders"
    spark, duckdb, pyiceberg = pasted_queries(folder, f"file://{orders}")
    assert str(folder.spark_settings) in shlex.split(spark.text)
    assert "'" + orders.replace("'", "''") + "'" in duckdb.text
    constants = [
        each.value for each in ast.walk(ast.parse(pyiceberg.text)) if isinstance(each, ast.Constant)
    ]
    assert f"{orders}/metadata/*.metadata.json" in constants


def test_paths_below_the_folder_we_are_in_are_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spark, *_ = pasted_queries(LakeFolder(tmp_path / "lake"), "file:/x")
    assert "lake/spark.conf" in shlex.split(spark.text)
