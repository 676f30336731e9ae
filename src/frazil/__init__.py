"""Streams of changes become Apache Iceberg tables.

For programs and notebooks: ``run`` brings the mirrors of a pipeline up to date, ``merge_table``
merges a changelog into its mirror with a Spark session of the caller's, ``load_config`` reads a
configuration, ``open_session`` starts a session for one. What is heavy is imported when it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from frazil.errors import FrazilError
from frazil.version import __version__

if TYPE_CHECKING:
    from frazil.clients.spark.session import open_session
    from frazil.config import load_config
    from frazil.merge.library import merge_table
    from frazil.merge.report import MergeReport
    from frazil.pipeline.library import run
    from frazil.pipeline.status.values import PipelineStatus

_MODULE_OF = {
    "MergeReport": "frazil.merge.report",
    "PipelineStatus": "frazil.pipeline.status.values",
    "load_config": "frazil.config",
    "merge_table": "frazil.merge.library",
    "open_session": "frazil.clients.spark.session",
    "run": "frazil.pipeline.library",
}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "FrazilError",
    "MergeReport",
    "PipelineStatus",
    "__version__",
    "load_config",
    "merge_table",
    "open_session",
    "run",
]
