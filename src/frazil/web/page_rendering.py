"""The page as HTML; the only module that uses Jinja."""

from __future__ import annotations

import re
from datetime import UTC
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from frazil.model import humanize
from frazil.model.printable import printable_lines
from frazil.pipeline.status import wording
from frazil.web.access import Verdict
from frazil.web.page_view import HEIGHT, WIDTH, advice_of, shares_of, table_tone, view_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from frazil.pipeline.status.values import PipelineStatus

_HOST: Final = re.compile(r"[\w.:\[\]-]+", re.ASCII)
# Without a script the page is loaded again, which moves the reader about: not too often then.
RELOAD_SECONDS: Final = 10
# With a script it is updated without a reload.
REFRESH_SECONDS: Final = 2


def render_status(status: PipelineStatus, *, assets: Mapping[str, str]) -> str:
    """The page; ``assets`` are the addresses of what it is made of."""
    return _environment.get_template("status.html").render(
        status=status,
        view=view_of(status),
        now=status.at,
        assets=assets,
        reload_seconds=RELOAD_SECONDS,
        refresh_seconds=REFRESH_SECONDS,
    )


def render_refusal(verdict: Verdict, *, host: str, assets: Mapping[str, str]) -> str:
    """The page without access: what is required, and how to send it."""
    return _environment.get_template("refused.html").render(
        is_wrong_host=verdict is Verdict.WRONG_HOST,
        is_wrong_token=verdict is Verdict.WRONG_TOKEN,
        # Part of a command to copy, and written by the client.
        host=host if _HOST.fullmatch(host) else "HOST",
        assets=assets,
    )


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")


def _finalized(value: object) -> object:
    # Marks that turn text around would do so on a page as well; what is markup is ours.
    is_markup = hasattr(value, "__html__")
    return printable_lines(value) if isinstance(value, str) and not is_markup else value


def _build_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("frazil.web"),
        # Everything is HTML here; no name of a table is.
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        advice=advice_of,
        duration=humanize.duration,
        iso=_iso,
        health_lines=wording.health_lines,
        lag=wording.lag,
        number=humanize.number,
        rows=wording.rows,
        shares=shares_of,
        size=humanize.size,
        total=wording.total,
    )
    environment.globals.update(
        ago=humanize.ago,
        clock_time=humanize.clock_time,
        counted=humanize.counted,
        elapsed=humanize.elapsed,
        plot_height=HEIGHT,
        plot_width=WIDTH,
        table_tone=table_tone,
        until=humanize.until,
        unknown=humanize.UNKNOWN,
    )
    return environment


_environment = _build_environment()
