"""What a running process takes up from a changed document, and what it refuses by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.config import load_config
from frazil.pipeline.reloading import Reload, plan_reload

if TYPE_CHECKING:
    from pathlib import Path

    from frazil.config import Config

DOCUMENT = """
pipeline: shop
catalog: {kind: sql, uri: 'sqlite:///c.db', warehouse: 'file:///tmp/lake'}
source: {kind: postgres, dsn: '%(dsn)s', tables: ['public.*']}
ingest: {interval: %(ingest)s, max_rows: %(rows)d}
telemetry: {log: {level: %(level)s}}
"""
SAME = {"dsn": "postgresql://u:geheim@h/d", "ingest": "10s", "rows": 1000, "level": "info"}


def loaded(folder: Path, **changes: object) -> Config:
    document = folder / "frazil.yaml"
    document.write_text(DOCUMENT % {**SAME, **changes})
    return load_config(document, environ={}).config


def test_the_same_document_changes_nothing(tmp_path: Path) -> None:
    assert plan_reload(loaded(tmp_path), loaded(tmp_path)) == Reload((), ())


def test_intervals_and_the_log_level_are_taken_up(tmp_path: Path) -> None:
    plan = plan_reload(loaded(tmp_path), loaded(tmp_path, ingest="3s", level="debug"))
    assert plan == Reload(("ingest.interval", "telemetry.log.level"), ())


def test_everything_else_is_refused_by_its_name_alone(tmp_path: Path) -> None:
    after = loaded(tmp_path, rows=5, dsn="postgresql://u:anders@h/d", ingest="3s")
    plan = plan_reload(loaded(tmp_path), after)
    assert plan == Reload(("ingest.interval",), ("ingest.max_rows", "source.dsn"))
