"""A process of its own that merges one table once, for tests that kill or suspend it.

``python merge_worker.py DOCUMENT TABLE CACHE``: prints what happened as one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import open_session
from frazil.config import load_config
from frazil.errors import FrazilError
from frazil.merge.merger import Merger
from frazil.merge.planning.settings import IndexSettings
from tests.support.lake.mirrored import settings_for


def work(document: Path, table: str, cache: Path) -> dict[str, object]:
    """What this process does."""
    config = load_config(document, environ={}).config
    with open_session(config) as spark:
        catalog = config.catalog.name
        settings = settings_for(catalog, table, index=IndexSettings(cache_dir=cache))
        try:
            report = Merger(spark, Lake(spark, catalog), settings).merge()
        except FrazilError as error:
            return {"commits": 0, "error": error.code}
        return {"commits": len(report.commits), "error": None}


if __name__ == "__main__":
    done = work(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
    sys.stdout.write(json.dumps(done) + "\n")
