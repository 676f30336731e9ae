"""Tables marked to be copied again: which ones are meant, and their state in the ledger.

Without a source there is nothing to read again but the changelogs: their mirrors are rebuilt.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from frazil.errors import ConfigError, TableNotFoundError
from frazil.hooks import SystemRandomness
from frazil.ledger.table import Ledger
from frazil.ledger.table_state import Copying, TableState
from frazil.merge.merger import Merger
from frazil.model.command import command
from frazil.pipeline.configured_source import configured_source
from frazil.pipeline.tables.captured_mirrors import ledger_name
from frazil.pipeline.tables.captured_names import CapturedNames, captured_names
from frazil.pipeline.tables.merge_settings import merge_settings, retry_policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.clients.iceberg.lake import Lake
    from frazil.clients.spark.session import Session
    from frazil.config import Config

# Enough that two operators never choose the same name for a batch.
_BATCH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Resync:
    """The tables that are to be read again, as they stand now; lives on the driver."""

    ledger: Ledger
    pipeline: str
    tables: tuple[TableState, ...]

    def apply(self) -> None:
        """Say so in the ledger; a running ingest takes it up before its next batch."""
        again = [
            TableState(table=each.table, identity=each.identity, state=Copying())
            for each in self.tables
        ]
        batch = f"resync-{SystemRandomness().token(_BATCH_BYTES).hex()}"
        self.ledger.note([], pipeline=self.pipeline, batch=batch, table_states=again)


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Mirrors of changelogs that another system fills, to be rebuilt from them."""

    session: Session
    lake: Lake
    config: Config
    mirrors: tuple[str, ...]

    def apply(self) -> None:
        """Build them, each in one commit and then what came meanwhile."""
        for mirror in self.mirrors:
            settings = merge_settings(self.config, mirror)
            retry = retry_policy(self.config)
            Merger(self.session, self.lake, settings, retry=retry).merge(rebuild=True)


def load_resync(lake: Lake, config: Config, chosen: Sequence[str], *, everything: bool) -> Resync:
    """The tables that are meant; raises ConfigError for a name that is none of them.

    Also for a source that cannot give any table again.
    """
    kind = configured_source(config)
    if not kind.can_resync:
        message = f"a source of the kind {kind.name} does not keep what was captured."
        raise ConfigError(message, next_step=command("position", "set"))
    try:
        ledger = Ledger.open(lake, ledger_name(config))
    except TableNotFoundError:
        raise ConfigError(
            "nothing was captured yet.", next_step="frazil ingest copies every table first"
        ) from None
    table_states = {each.table: each for each in ledger.table_states()}
    names = list(table_states) if everything else _meant(config, chosen, table_states)
    return Resync(ledger, config.pipeline, tuple(table_states[name] for name in names))


def _meant(
    config: Config, chosen: Sequence[str], table_states: Mapping[str, TableState]
) -> list[str]:
    by_any_name: dict[str, str] = {}
    for source, names in captured_names(config, table_states, table_states).items():
        if isinstance(names, CapturedNames):
            by_any_name |= {str(names.changelog): source, names.listed_as: source}
    by_any_name |= {source: source for source in table_states}
    for name in chosen:
        if name not in by_any_name:
            near = get_close_matches(name, by_any_name, n=1)
            hint = f"; did you mean {near[0]}?" if near else "."
            message = f"{name!r} is not among the tables captured{hint}"
            raise ConfigError(message, next_step="frazil ingest --once lists them")
    return list(dict.fromkeys(by_any_name[name] for name in chosen))
