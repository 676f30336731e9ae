"""A status written and read again."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from frazil.pipeline.status.json_form import redact_status, status_from_json, status_to_json
from frazil.pipeline.status.values import CopyStatus, Phase, PipelineStatus, Sample, SourceStatus
from frazil.sources.health import PartitionHealth
from frazil.sources.postgres.health import show_slot
from frazil.telemetry.redaction import Redactor
from tests.support.status.statuses import NOW, RESYNC, SCENARIOS, SLOT, UNREACHABLE, running, table

SECRET = "hunter2-hunter2"


def there_and_back(status: PipelineStatus) -> PipelineStatus:
    return status_from_json(json.loads(json.dumps(status_to_json(status))))


def full() -> PipelineStatus:
    """A status in which nothing has its default, so that a field that is forgotten shows."""
    copy = CopyStatus(rows=1, bytes_read=2, bytes_total=3, fraction=0.4, remaining_seconds=5.0)
    partition = PartitionHealth(partition="orders/0", newest=3, offset=2, holder="another")
    health = replace(show_slot(SLOT), partitions=(partition,))
    source = SourceStatus(
        kind="postgres", lag_seconds=1.5, lag_bytes=2, health=health, is_paused=True,
        pending_commits=2, next_run=NOW, unknown_since=NOW, leases_held=1,
        trouble=UNREACHABLE, standby="the slot is read by another process",
    )  # fmt: skip
    one = table("public.a", phase=Phase.STOPPED, copy=copy, trouble=RESYNC, is_first_load=True)
    return replace(running(), source=source, tables=(one,))


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_read_back_equals_what_was_written(name: str) -> None:
    status = SCENARIOS[name]()
    assert there_and_back(status) == status


def test_every_field_makes_the_way() -> None:
    status = full()
    assert there_and_back(status) == status
    forgotten = [path for path, value in leaves_of(status) if value in (None, (), {}, False)]
    # Only what a commit of an ingest, an index without repairs, or a line without verdict lacks.
    absent = {"phases", "retry_at", "repairs", "is_well"}
    assert {path.rsplit(".", 1)[-1] for path in forgotten} <= absent


def leaves_of(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if is_dataclass(value):
        pairs = [(each.name, getattr(value, each.name)) for each in fields(value)]
    elif isinstance(value, tuple):
        pairs = [(str(number), each) for number, each in enumerate(value)]
    else:
        return [(path, value)]
    return [leaf for name, each in pairs for leaf in leaves_of(each, f"{path}.{name}")]


def test_times_have_their_zone_and_states_are_words() -> None:
    document = status_to_json(full())
    assert document["at"] == "2026-03-14T09:26:53+00:00"
    shown = json.loads(json.dumps(document))
    assert shown["tables"][0]["phase"] == "stopped"
    assert shown["stopped"] == ["public.a"]
    assert shown["lag_seconds"] is None
    assert shown["action_required"] is True


def test_health_is_among_the_fields_of_the_source() -> None:
    source = json.loads(json.dumps(status_to_json(running())))["source"]
    assert source["slot"]["retained_bytes"] == SLOT.retained_bytes
    assert source["summary"].startswith("slot shop_frazil")
    assert "health" not in source
    unknown = replace(running(), source=SourceStatus(kind="postgres"))
    assert json.loads(json.dumps(status_to_json(unknown)))["source"]["slot"] is None
    assert there_and_back(unknown) == unknown


def test_a_time_in_another_zone_is_the_same_moment() -> None:
    status = replace(running(), at=NOW.astimezone(timezone(timedelta(hours=2))))
    assert there_and_back(status) == running()


def test_fields_of_a_newer_process_are_passed_over_and_missing_ones_get_their_defaults() -> None:
    document = json.loads(json.dumps(status_to_json(running())))
    document["moods"] = ["good"]
    document["tables"][0]["mood"] = {"today": "good"}
    document["source"]["mood"] = 1
    assert status_from_json(document) == running()
    del document["samples"], document["source"]["is_paused"], document["tables"][0]["commits"]
    read = status_from_json(document)
    assert read.samples == ()
    assert read.tables[0].commits == ()
    assert read.source is not None
    assert not read.source.is_paused


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        "ready",
        {},
        {"ready": True},
        {"format": 2},
        {"format": 1},
        {**status_to_json(running()), "at": "2026-03-14T09:26:53"},
        {**status_to_json(running()), "at": 5},
        {**status_to_json(running()), "is_live": "yes"},
        {**status_to_json(running()), "tables": {}},
        {**status_to_json(running()), "tables": [{"table": "a", "phase": "dancing"}]},
        {**status_to_json(running()), "errors": {"FRZ-CFG-01": True}},
        {**status_to_json(running()), "errors": {"FRZ-CFG-01": 1.5}},
        {**status_to_json(running()), "samples": [{"at": "2026-03-14T09:26:53+00:00"}]},
    ],
)
def test_what_is_no_status_is_refused(document: object) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        status_from_json(document)


def test_no_text_shows_a_secret_and_everything_else_stays() -> None:
    problem = replace(RESYNC, reason=f"password {SECRET} was refused", remedy=f"use {SECRET}")
    status = replace(
        running(),
        pipeline=SECRET,
        tables=(table(f"public.{SECRET}", trouble=problem, captured={SECRET: 3}),),
    )
    shown = redact_status(status, Redactor([SECRET]))
    assert SECRET not in repr(shown)
    assert shown.tables[0].trouble is not None
    assert shown.tables[0].trouble.reason == "password *** was refused"
    assert shown.tables[0].phase is Phase.STREAMING
    assert shown.samples == status.samples
    assert redact_status(running(), Redactor([SECRET])) == running()


def test_samples_may_be_unknown() -> None:
    sample = Sample(at=datetime.fromisoformat("2026-01-01T00:00:00+00:00"), lag_seconds=None,
                    changes_per_second=0.0)  # fmt: skip
    status = replace(running(), samples=(sample,))
    assert there_and_back(status) == status


def test_what_a_newer_process_nests_deeper_in_its_source_is_ignored() -> None:
    document = status_to_json(full())
    source: Any = document["source"]
    newer = {**source, "future": {"of": [1]}, "later": {"a": {"b": 1}}}
    assert status_from_json({**document, "source": newer}) == full()
