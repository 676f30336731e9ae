"""Pipelines in every condition, as values: what pages and commands are shown in tests."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from frazil.pipeline.status.values import (
    CommitStatus,
    CopyStatus,
    IndexStatus,
    Phase,
    PipelineStatus,
    ProblemStatus,
    Sample,
    SourceStatus,
    TableStatus,
)
from frazil.sources.postgres.health import SlotHealth, show_slot
from frazil.version import __version__

NOW = datetime(2026, 3, 14, 9, 26, 53, tzinfo=UTC)
STARTED = NOW - timedelta(hours=52, minutes=17)

RESYNC = ProblemStatus(
    code="FRZ-SCH-01",
    reason=(
        "public.invoices at 16/B374D848: column total changed from numeric(12,2) to text; rows "
        "written so far cannot be read as the new type."
    ),
    remedy="frazil resync public.invoices",
    since=NOW - timedelta(minutes=41),
)
UNREACHABLE = ProblemStatus(
    code="FRZ-SRC-01",
    reason="the server at db.shop.example closed the connection while it was being asked.",
    remedy="Check that the server runs and can be reached; `frazil check` looks at everything.",
    since=NOW - timedelta(seconds=95),
    retry_at=NOW + timedelta(seconds=12),
)
HOSTILE = "public.<script>alert('x')</script>\"><img src=x onerror=alert(1)>"
LONG = "warehouse." + "a_table_whose_name_goes_on_" * 9 + "forever"


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def commit(
    table: str, *, role: str = "merge", ago: float = 4, rows: int = 1204, number: int = 1
) -> CommitStatus:
    """One commit, with the parts of its work if it is a merge's."""
    parts = {
        "plan": 0.06,
        "read": 0.31,
        "fold": 0.18,
        "locate": 0.22,
        "write": 0.64,
        "index": 0.12,
        "commit": 0.24,
    }
    return CommitStatus(
        at=NOW - seconds(ago),
        table=table,
        role=role,
        lake_table=table if role == "merge" else f"{table}_changelog",
        snapshot_id=3_051_729_675_574_597_004 + 17**11 * (sum(map(ord, table)) + 7 * number),
        rows=rows,
        seconds=1.77 if role == "merge" else 0.92,
        phases=parts if role == "merge" else {},
    )


def commits_of(table: str, *, count: int = 4, rows: int = 1204) -> tuple[CommitStatus, ...]:
    """Merges and ingests in turn, newest first."""
    # Tables are not merged all at once.
    first = 2.4 + sum(map(ord, table)) % 8
    return tuple(
        commit(
            table,
            role="merge" if number % 2 == 0 else "ingest",
            ago=first + 5.2 * number,
            rows=max(rows - 37 * number, 1),
            number=number,
        )
        for number in range(count)
    )


def table(name: str, lag: float = 3.1, rows: int = 41_200, /, **more: object) -> TableStatus:
    """A table that is followed."""
    known: dict[str, object] = {
        "table": name,
        "phase": Phase.STREAMING,
        "since": NOW - timedelta(hours=52),
        "changelog": f"{name}_changelog",
        "mirror": name,
        "lag_seconds": lag,
        "lag_bytes": 18_400,
        "mirror_rows": rows,
        "changelog_rows": rows + rows // 9 + rows // 5 + rows // 40,
        "captured": {"READ": rows, "INSERT": rows // 9, "UPDATE": rows // 5, "DELETE": rows // 40},
        "merged": {"insert": rows, "update": rows // 6, "delete": rows // 41, "none": 3},
        "index": IndexStatus(entries=rows, bytes=rows * 21, repairs=0),
        "commits": commits_of(name, rows=rows // 40),
        "next_run": NOW + seconds(7),
    }
    return TableStatus(**{**known, **more})  # type: ignore[arg-type]


def samples(*, count: int = 120, step: float = 5) -> tuple[Sample, ...]:
    """Ten minutes with a busy spell in the middle."""
    found = []
    for number in range(count):
        spell = math.exp(-(((number - count * 0.58) / (count * 0.07)) ** 2))
        wave = math.sin(number / 3.1) * 0.5 + math.sin(number / 7.7) * 0.4
        found.append(
            Sample(
                at=NOW - seconds(step * (count - 1 - number)),
                lag_seconds=round(3.2 + wave + 5.5 * spell, 2),
                changes_per_second=round(980 + 160 * wave + 1900 * spell, 1),
            )
        )
    return tuple(found)


SLOT = SlotHealth(
    name="shop_frazil",
    is_active=True,
    state="reserved",
    confirmed="16/B374D848",
    retained_bytes=41_943_040,
    safe_bytes=10_200_547_328,
)
SOURCE = SourceStatus(
    kind="postgres",
    lag_seconds=1.4,
    lag_bytes=184_320,
    health=show_slot(SLOT),
    next_run=NOW + seconds(3),
)


def starting() -> PipelineStatus:
    """The process has started, Spark has not."""
    return PipelineStatus(
        pipeline="shop",
        version=__version__,
        at=NOW,
        started_at=NOW - seconds(3),
        is_live=True,
        roles=("ingest", "merge"),
    )


def running() -> PipelineStatus:
    """Everything is followed."""
    tables = (
        table("public.customers", 2.8, 18_204),
        table("public.orders", 3.4, 241_630, phase=Phase.MERGING),
        table("public.order_lines", 3.1, 912_477),
        table("public.products", 2.2, 5_120, phase=Phase.WAITING, lag_bytes=0),
        table("public.audit_log", 1.9, 88_014, mirror=None, merged={}, index=None),
    )
    newest = sorted((each for one in tables for each in one.commits[:3]), key=lambda c: c.at)
    return PipelineStatus(
        pipeline="shop",
        version=__version__,
        at=NOW,
        started_at=STARTED,
        is_live=True,
        roles=("ingest", "merge"),
        source=SOURCE,
        tables=tables,
        commits=tuple(reversed(newest))[:8],
        errors={"FRZ-LAK-05": 2, "FRZ-SRC-01": 1},
        samples=samples(),
    )


def copying() -> PipelineStatus:
    """Two tables are read for the first time, one of them waits for its turn."""
    copy = CopyStatus(
        rows=3_812_400,
        bytes_read=1_717_986_918,
        bytes_total=4_080_218_931,
        fraction=0.421,
        remaining_seconds=374,
    )
    fresh: dict[str, object] = {
        "commits": (),
        "captured": {},
        "merged": {},
        "mirror_rows": None,
        "changelog_rows": 0,
        "index": None,
        "next_run": None,
    }
    return replace(
        running(),
        started_at=NOW - seconds(290),
        tables=(
            table(
                "public.order_lines",
                phase=Phase.COPYING,
                lag_seconds=None,
                lag_bytes=None,
                is_first_load=True,
                mirror=None,
                copy=copy,
                since=NOW - seconds(280),
                **fresh,
            ),
            table(
                "public.orders",
                phase=Phase.COPYING,
                lag_seconds=None,
                lag_bytes=None,
                is_first_load=True,
                mirror=None,
                since=NOW - seconds(280),
                **fresh,
            ),
            table("public.customers", 3.1, 18_204),
        ),
        source=replace(SOURCE, is_paused=True),
        errors={},
        samples=samples(count=30),
    )


def stopped() -> PipelineStatus:
    """One table requires action, one is tried again, the rest goes on."""
    before = running()
    invoices = table(
        "public.invoices",
        phase=Phase.STOPPED,
        since=RESYNC.since,
        trouble=RESYNC,
        lag_seconds=None,
        lag_bytes=12_902_400,
        next_run=None,
    )
    conflict = ProblemStatus(
        code="FRZ-LAK-05",
        reason="public.orders: another writer committed first, three times in a row.",
        remedy="Nothing: it is tried again.",
        since=NOW - seconds(18),
        retry_at=NOW + seconds(5),
    )
    orders = replace(before.tables[1], phase=Phase.WAITING, trouble=conflict)
    return replace(
        before,
        tables=(before.tables[0], invoices, orders, *before.tables[2:]),
        errors={**before.errors, "FRZ-SCH-01": 1},
    )


def unreachable() -> PipelineStatus:
    """The source does not answer, so that nobody knows how its slot is."""
    source = replace(
        SOURCE, lag_bytes=None, health=None, unknown_since=UNREACHABLE.since, trouble=UNREACHABLE
    )
    return replace(running(), source=source)


def in_danger() -> PipelineStatus:
    """The server is about to take away what was not read yet."""
    slot = replace(SLOT, is_active=False, state="unreserved", safe_bytes=0)
    return replace(running(), source=replace(SOURCE, health=show_slot(slot)))


def source_stopped() -> PipelineStatus:
    """Nothing is captured until a person has acted; the tables are as they were."""
    lost = replace(
        UNREACHABLE,
        code="FRZ-SRC-03",
        reason="the slot shop_frazil is gone, and with it the changes since 16/B374D848.",
        remedy="frazil resync --all",
        retry_at=None,
    )
    return replace(running(), source=replace(SOURCE, health=None, trouble=lost))


def merge_only() -> PipelineStatus:
    """Others fill the changelogs."""
    before = running()
    return replace(
        before,
        roles=("merge",),
        source=None,
        tables=tuple(
            replace(each, captured={}, lag_bytes=None, phase=Phase.WAITING)
            for each in before.tables[:3]
        ),
        commits=tuple(each for each in before.commits if each.role == "merge"),
        errors={},
    )


def hostile() -> PipelineStatus:
    """Names and reasons that would like to be HTML, and one without an end."""
    trouble = replace(RESYNC, reason=f"no {HOSTILE}", remedy=f"frazil resync '{HOSTILE}'")
    return replace(
        running(),
        pipeline=HOSTILE,
        tables=(
            table(HOSTILE, phase=Phase.STOPPED, trouble=trouble),
            table(LONG, trouble=replace(trouble, remedy=f"see `{LONG}` and </p><b>bold</b>")),
        ),
        commits=(commit(HOSTILE), commit(LONG)),
        errors={HOSTILE: 1},
        source=replace(
            SOURCE, kind=HOSTILE, health=show_slot(replace(SLOT, name=LONG, state=HOSTILE))
        ),
    )


SCENARIOS = {
    "starting": starting,
    "copying": copying,
    "running": running,
    "stopped": stopped,
    "unreachable": unreachable,
    "in danger": in_danger,
    "source stopped": source_stopped,
    "merge only": merge_only,
    "hostile": hostile,
}
