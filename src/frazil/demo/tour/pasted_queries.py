"""Queries to paste: the same question to the lake with three engines."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.clients.spark.java import find_java

if TYPE_CHECKING:
    from frazil.demo.tour.lake_folder import LakeFolder

_QUESTION = """\
select status, count(*) as orders, sum(total) as revenue
from {orders}
group by status
order by status"""

# The catalog's file names no version; that of the table's newest metadata is in its own name.
_DUCKDB = """\
install iceberg; load iceberg; set unsafe_enable_version_guessing = true;
{question};"""

_PYICEBERG = """\
from glob import glob
from pyiceberg.table import StaticTable
newest = max(glob({metadata!r}))
orders = StaticTable.from_metadata(newest).scan().to_arrow()
revenue = orders.group_by("status").aggregate([("id", "count"), ("total", "sum")])
print(*revenue.sort_by("status").to_pylist(), sep="\\n")"""


@dataclass(frozen=True, slots=True)
class PastedQuery:
    """Something to paste, and where."""

    engine: str
    into: str
    text: str


def pasted_queries(folder: LakeFolder, orders: str) -> tuple[PastedQuery, ...]:
    """The same question for Spark, DuckDB and PyIceberg; ``orders`` is where that table lies."""
    path = orders.removeprefix("file://").removeprefix("file:")
    return (
        PastedQuery("Spark", "a shell", _spark(folder)),
        PastedQuery("DuckDB", "duckdb", _duckdb(path)),
        PastedQuery(
            "PyIceberg", "python", _PYICEBERG.format(metadata=f"{path}/metadata/*.metadata.json")
        ),
    )


def _spark(folder: LakeFolder) -> str:
    # A line of its own, so that people see where the query begins.
    question = "\n" + _QUESTION.format(orders="lake.shop.orders")
    arguments = [
        program("spark-sql"),
        "--properties-file",
        near(folder.spark_settings),
        "-e",
        question,
    ]
    return f"{_java_home()}{_python()}{shlex.join(arguments)}"


def _duckdb(path: str) -> str:
    quoted = path.replace("'", "''")
    return _DUCKDB.format(question=_QUESTION.format(orders=f"iceberg_scan('{quoted}')"))


def _java_home() -> str:
    """Names our Java where Spark's programs would find another one, or none."""
    java = find_java()
    if "JAVA_HOME" in os.environ:
        found = Path(os.environ["JAVA_HOME"])
    else:
        on_path = shutil.which("java")
        found = Path(on_path).resolve().parents[1] if on_path else Path()
    if found.resolve() == java.home.resolve():
        return ""
    return f"JAVA_HOME={shlex.quote(str(java.home))} "


def _python() -> str:
    """Names our Python where Spark's programs would use another one."""
    found, ours = shutil.which("python3"), Path(sys.executable)
    if found is not None and Path(found).parent == ours.parent:
        return ""
    return f"PYSPARK_PYTHON={shlex.quote(near(ours))} "


def program(name: str) -> str:
    """A program of this installation, as one would type it here."""
    ours = Path(sys.executable).with_name(name)
    return near(ours) if ours.exists() else name


def near(path: Path) -> str:
    """A path as one would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
