"""The process from which Spark forks its Python workers, with everything loaded that tasks need.

Spark runs this module instead of ``pyspark.daemon`` in our local sessions. A worker that is
forked from here starts in milliseconds, where one that has to load pyarrow and us takes a second;
Spark ends idle workers after a minute, so that is what every merge of a quiet table would pay.
"""

from __future__ import annotations

import gc
import importlib
import sys

# Spark's side of a worker, and the modules our tasks are unpickled from; they load all the rest.
_TASK_MODULES = (
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "frazil.ingest.task",
    "frazil.merge.writing.task",
    "frazil.mirror.index.keeping",
)
# Has the modules of every kind of source.
_REGISTRY = "frazil.sources.registry"


def forget_archives() -> None:
    """Take Spark's archives of itself off the path: the installed package is the same.

    Before every task a worker invalidates all importers, and one for an archive then reads
    the list of its files, which takes longer than many a task.
    """
    archives = [path for path in sys.path if "pyspark" in path and path.endswith((".zip", ".jar"))]
    sys.path[:] = [path for path in sys.path if path not in archives]
    for path in archives:
        sys.path_importer_cache.pop(path, None)


def preload() -> None:
    """Load what tasks use, and keep the garbage collector of each worker from traversing it."""
    for name in (*_TASK_MODULES, *importlib.import_module(_REGISTRY).TASK_MODULES):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def main() -> None:
    """What ``python -m pyspark.daemon`` does."""
    forget_archives()
    preload()
    from pyspark.daemon import manager  # noqa: PLC0415 - from the path as it is now

    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
