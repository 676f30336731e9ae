"""What the configuration wants of a buffer source, as values it can work with."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from frazil.sources.buffer.dead_letters import LetterPolicy
from frazil.sources.buffer.relations import relations_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from frazil.clients.postgres.dsn import SecretText
    from frazil.config import Config
    from frazil.config.models.buffer_source import BufferSection
    from frazil.sources.buffer.relations import BufferRelations
    from frazil.sources.kind import TableSettingsOf

_ALL = ("*.*",)
_WILD = {"*": ".*", "?": "."}


@dataclass(frozen=True)
class TableChoice:
    """Which tables are drained, by patterns; the server reads the same expressions as Python."""

    include: tuple[str, ...] = _ALL
    exclude: tuple[str, ...] = ()

    def selects(self, table: str) -> bool:
        """Whether a table of this name is drained; it need not exist."""
        chosen = self._compiled_include.fullmatch(table) is not None
        return chosen and self._compiled_exclude.fullmatch(table) is None

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self.include == _ALL and not self.exclude

    @property
    def include_pattern(self) -> str:
        """What names to be drained match."""
        return _expression(self.include)

    @property
    def exclude_pattern(self) -> str:
        """What names to be left out match; the pattern that nothing matches without any."""
        return _expression(self.exclude)

    @cached_property
    def _compiled_include(self) -> re.Pattern[str]:
        return re.compile(self.include_pattern, re.DOTALL)

    @cached_property
    def _compiled_exclude(self) -> re.Pattern[str]:
        return re.compile(self.exclude_pattern, re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class BufferSettings:
    """The connection, the names at the server, and the bounds."""

    dsn: SecretText = field(repr=False)
    pipeline: str
    relations: BufferRelations
    source_ids: tuple[str, ...]
    choice: TableChoice
    claim_rows: int
    poll_seconds: float
    letters: LetterPolicy
    tables: TableSettingsOf

    @property
    def worker_lock(self) -> str:
        """The lock of the process that works for the pipeline."""
        return f"pipeline {self.pipeline} of {self.relations.events}"


def buffer_settings(
    config: Config, section: BufferSection, tables: TableSettingsOf
) -> BufferSettings:
    """What the configuration says about the source."""
    return BufferSettings(
        dsn=section.dsn,
        pipeline=config.pipeline,
        relations=relations_of(section),
        source_ids=section.source_ids,
        choice=TableChoice(section.tables, section.exclude),
        claim_rows=section.claim_rows,
        poll_seconds=section.poll.total_seconds(),
        letters=LetterPolicy(
            enabled=section.dead_letters.enabled, retention=section.dead_letters.retention
        ),
        tables=tables,
    )


def _expression(patterns: Iterable[str]) -> str:
    each = "|".join("".join(_WILD.get(sign) or _literal(sign) for sign in it) for it in patterns)
    # Without any pattern: what no text matches.
    return f"^(?:{each})$" if each else "^(?!)$"


def _literal(sign: str) -> str:
    # A backslash before a letter would mean something else to the server.
    return sign if sign.isalnum() or sign == "_" else f"\\{sign}"
