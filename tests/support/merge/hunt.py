"""Random histories for as long as a budget lasts: ``hunt SECONDS SEED FOLDER``.

Every history is compared after each of its merges. One that fails is left in the folder as a replay
file, and made smaller with ``hunt --shrink FILE``.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from unittest import mock
from uuid import uuid4

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark import task_errors
from frazil.clients.spark.session import open_session
from frazil.config import load_config
from tests.support.merge.histories import make_history
from tests.support.merge.model import Append, dump, load
from tests.support.merge.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from frazil.errors import FrazilError
    from tests.support.merge.model import History

CATALOG = "hunt"
_DOCUMENT = """
pipeline: hunt
catalog:
  name: {catalog}
  kind: sql
  uri: 'sqlite:///{folder}/catalog.db'
  warehouse: 'file://{folder}/warehouse'
tables: [{{mirror: a.b, changelog: a.c, key: [id]}}]
spark:
  master: 'local[2]'
  conf:
    spark.sql.shuffle.partitions: '1'
    spark.sql.adaptive.enabled: 'false'
    spark.driver.memory: 1g
    spark.ui.enabled: 'false'
"""
_LENGTHS = (2, 3, 5, 8)
_HEARD = 4_000


@dataclass(frozen=True, slots=True)
class Hunt:
    """A session of its own over a catalog of its own."""

    session: SparkSession
    lake: Lake
    folder: Path

    def failure(self, history: History) -> str:
        """What goes wrong with a history; nothing if all is well."""
        name = f"t_{uuid4().hex[:12]}"
        with _overhearing() as heard:
            try:
                world = World(self.session, self.lake, CATALOG, history, self.folder, name)
                world.run(check_merges=True)
            except Exception:  # noqa: BLE001 - whatever it is, it is what we hunt
                return "\n".join([*heard[-1:], traceback.format_exc()])
        return ""

    def shrunk(self, history: History) -> History:
        """The same failure with fewer steps, and with fewer changes in them."""
        wanted = _kind(self.failure(history))
        size = len(history.steps)
        while size:
            history = self._without(history, size, wanted)
            size //= 2
        for at, step in enumerate(history.steps):
            if isinstance(step, Append):
                history = self._with_fewer_changes(history, at, wanted)
        return history

    def _without(self, history: History, size: int, wanted: str) -> History:
        """Without runs of so many steps that do not matter."""
        at = 0
        while at < len(history.steps):
            rest = (*history.steps[:at], *history.steps[at + size :])
            smaller = replace(history, steps=rest)
            if _kind(self.failure(smaller)) == wanted:
                history = smaller
            else:
                at += size
        return history

    def _with_fewer_changes(self, history: History, step: int, wanted: str) -> History:
        """Without the changes of one step that do not matter."""
        append = history.steps[step]
        assert isinstance(append, Append)
        size = max(len(append.changes) // 2, len(append.alter))
        while size:
            at = 0
            while at < max(len(append.changes), len(append.alter)):
                fewer = replace(append, changes=_cut(append.changes, at, size))
                for smaller in (replace(append, alter=_cut(append.alter, at, size)), fewer):
                    steps = (*history.steps[:step], smaller, *history.steps[step + 1 :])
                    tried = replace(history, steps=steps)
                    if smaller != append and _kind(self.failure(tried)) == wanted:
                        history, append = tried, smaller
                        break
                else:
                    at += size
            size //= 2
        return history


@contextmanager
def _overhearing() -> Iterator[list[str]]:
    """Spark's messages about failed tasks, which are hidden otherwise: they may show rows."""
    heard: list[str] = []
    original = task_errors._as_error

    def overheard(text: str, *, table: str, doing: str) -> FrazilError:
        heard.append(text[-_HEARD:])
        return original(text, table=table, doing=doing)

    with mock.patch.object(task_errors, "_as_error", overheard):
        yield heard


_Item = TypeVar("_Item")


def _cut(items: tuple[_Item, ...], at: int, size: int) -> tuple[_Item, ...]:
    return (*items[:at], *items[at + size :])


def _kind(failure: str) -> str:
    """What two failures have in common if they are one."""
    last = failure.strip().splitlines()[-1] if failure else ""
    return re.sub(r"t_[0-9a-f]+|-?\d+|'[^']*'", "", last)[:300]


@contextmanager
def opened() -> Iterator[Hunt]:
    """Everything a hunt needs, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="frazil-hunt-") as name:
        folder = Path(name)
        document = folder / "frazil.yaml"
        document.write_text(_DOCUMENT.format(catalog=CATALOG, folder=folder))
        with open_session(load_config(document, environ={}).config) as session:
            yield Hunt(session, Lake(session, CATALOG), folder)


def hunt(budget: float, seed: int, folder: Path) -> int:
    """How many histories failed; each is left as a file, and its seed printed."""
    ends = time.monotonic() + budget
    failed = ran = 0
    with opened() as world:
        while time.monotonic() < ends or not ran:
            number = seed + ran
            history = make_history(number, length=_LENGTHS[number % len(_LENGTHS)])
            failure = world.failure(history)
            ran += 1
            if failure:
                failed += 1
                folder.mkdir(parents=True, exist_ok=True)
                file = folder / f"seed-{number}.json"
                file.write_text(dump(history))
                print(f"seed {number} failed, see {file}\n{failure}", flush=True)  # noqa: T201
    print(f"{ran} histories from seed {seed} on, {failed} failed")  # noqa: T201
    return failed


def shrink(file: Path) -> None:
    """Make a replay file as small as it goes."""
    with opened() as world:
        smallest = world.shrunk(load(file.read_text()))
        file.with_suffix(".small.json").write_text(dump(smallest))
        print(world.failure(smallest))  # noqa: T201


def main(arguments: Sequence[str]) -> int:
    """Hunt, or shrink what was caught."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shrink", type=Path)
    parser.add_argument("seconds", type=float, nargs="?", default=60.0)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("found"))
    given = parser.parse_args(arguments)
    if given.shrink is not None:
        shrink(given.shrink)
        return 0
    return 1 if hunt(given.seconds, given.seed, given.folder) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
