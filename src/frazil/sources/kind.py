"""What a kind of source offers the pipeline: one object for its settings, its checks and itself.

Everything outside a kind's package speaks to it through ``SourceKind``; ``registry`` knows the
class by the name that ``source.kind`` has in the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Protocol

from frazil.errors import ConfigError
from frazil.model.policy import OnWiden
from frazil.sources.findings import CheckedItem, CheckOutcome, Findings

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import NoReturn

    from frazil.config import Config, TableSettings
    from frazil.hooks import Clock
    from frazil.model.marker import Position
    from frazil.sources.artifacts import Teardown
    from frazil.sources.chores import Chore
    from frazil.sources.health import HealthWatch
    from frazil.sources.letter_store import SourceLetters
    from frazil.sources.plan_facts import PlanFacts
    from frazil.sources.protocol import Claim, ObservableSource
    from frazil.sources.record_source import RecordSource
    from frazil.sources.replaying import RecordReplayer
    from frazil.sources.row_source import RowSource


class TableSettingsOf(Protocol):
    """What the configuration says about the tables of a source."""

    def __call__(self, table: str, /) -> TableSettings:
        """About this one, by its name at the source; ConfigError if it can have no tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturePolicy:
    """How an ingest treats this source.

    ``held_bytes`` is what the source may keep for a paused table. ``resyncs_lost`` copies all
    tables again when the source lost its position. ``quiet`` is how long the position of a source
    without changes may stay where it is.
    """

    held_bytes: int
    resyncs_lost: bool = False
    on_widen: OnWiden = OnWiden.VERIFY
    quiet: timedelta = timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTable:
    """A changelog, or a table that only grows, and the mirror that is merged from it.

    ``source`` is the name of the table at the source.
    """

    source: str
    changelog: str
    mirror: str | None = None


class SourceKind:
    """The source of one configuration; nothing is connected before a method is called.

    The methods here are those of a kind that offers nothing: a kind overrides what it can do.
    """

    name: ClassVar[str]
    # Whether it can give a table again, from its first row or its oldest change on.
    can_resync: ClassVar[bool] = True

    def __init__(self, config: Config, tables: TableSettingsOf) -> None:
        self.config = config
        self.tables = tables

    def validate(self) -> None:
        """Raise ConfigError for what no run can start with; nothing is connected."""
        self._refuse()

    @property
    def policy(self) -> CapturePolicy:
        """How an ingest treats this source."""
        self._refuse()

    def open(
        self,
        *,
        clock: Clock | None = None,  # noqa: ARG002 - for kinds
        is_stopping: Callable[[], bool] = lambda: False,  # noqa: ARG002 - for kinds
    ) -> ObservableSource:
        """The source itself; where it waits, it asks ``is_stopping`` whether to go on."""
        self._refuse()

    def claim(self) -> Claim:
        """The right to work for it, which one process has at a time."""
        self._refuse()

    def watch(self) -> HealthWatch:
        """The health of the source, for status, page and metrics."""
        self._refuse()

    def chores(self) -> tuple[Chore, ...]:
        """What is to be done from time to time next to its batches."""
        return ()

    def listed_tables(self) -> tuple[ListedTable, ...]:
        """Tables of the lake that its section names; most kinds name tables by templates."""
        return ()

    def position_problem(self, position: Position) -> str | None:
        """Why this cannot be a position of such a source; completes "--to: …"."""
        return None if position else "a position is not empty"

    # --- before a run ---

    def check_readiness(self) -> Findings:
        """What keeps a run from capturing anything; raises what prevents the check."""
        return Findings()

    def check(self) -> Findings:
        """Everything about the source; what prevents the check is a problem too."""
        skipped = f"a source of the kind {self.name} is not checked"
        return Findings(checked=(CheckedItem("source", skipped, CheckOutcome.SKIPPED),))

    def load_plan_facts(self) -> PlanFacts | None:
        """What ``frazil plan`` needs; None: only merges are planned."""
        return None

    # --- next to a run ---

    def rows(self) -> RowSource | None:
        """Rows to compare mirrors with; None: mirrors are compared with their changelogs."""
        return None

    def records(self) -> RecordSource | None:
        """Offsets to compare tables of records with; None: it has no such tables."""

    def replayer(self) -> RecordReplayer | None:
        """Reads records of dead letters again; None: they are not replayed."""
        return None

    def dead_letters(self) -> AbstractContextManager[SourceLetters] | None:
        """Dead letters that it keeps itself; None: they are in a table of the lake."""
        return None

    # --- after the last run ---

    def open_teardown(self) -> AbstractContextManager[Teardown]:
        """What the pipeline left at the source; nothing is changed until it is removed."""
        message = f"a source of the kind {self.name} keeps nothing of frazil's."
        raise ConfigError(message, next_step="name another document with -c")

    def _refuse(self) -> NoReturn:
        message = f"a source of the kind {self.name} cannot be captured by this version."
        raise ConfigError(message, next_step="choose another source.kind")
