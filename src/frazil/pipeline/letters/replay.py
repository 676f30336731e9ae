"""From the configuration to a replay of dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.config import table_settings
from frazil.errors import ConfigError
from frazil.ingest.replay import LetterReplay
from frazil.model.command import command
from frazil.model.policy import Order
from frazil.pipeline.capture import capture_settings
from frazil.pipeline.configured_source import configured_source
from frazil.pipeline.tables.captured_mirrors import load_captured_mirrors
from frazil.pipeline.tables.captured_names import LakeNames
from frazil.pipeline.tables.merge_settings import merge_settings, retry_policy

if TYPE_CHECKING:
    from collections.abc import Collection

    from frazil.clients.iceberg.lake import Lake
    from frazil.config import Config
    from frazil.ledger.dead_letters import DeadLetterTable
    from frazil.sources.kind import SourceKind
    from frazil.sources.replaying import RecordReplayer


def require_replay(config: Config) -> None:
    """ConfigError for a source whose letters cannot be replayed; nothing is connected."""
    kind = configured_source(config)
    if kind.dead_letters() is None:
        require_replayer(kind)


def require_replayer(kind: SourceKind) -> RecordReplayer:
    """What reads the letters again; ConfigError for a kind that cannot."""
    replayer = kind.replayer()
    if replayer is None:
        message = f"dead letters of a source of the kind {kind.name} cannot be replayed."
        raise ConfigError(message, next_step="frazil dlq show prints them, frazil dlq drop ends it")
    return replayer


def build_replay(
    lake: Lake, config: Config, letters: DeadLetterTable, tables: Collection[str]
) -> LetterReplay:
    """The replay of letters of these tables; ConfigError if one of them cannot take them."""
    names = LakeNames(config)
    kind = configured_source(config, names)
    replayer = require_replayer(kind)
    _refuse_ordered_mirrors(lake, config, tables)
    return LetterReplay(
        lake,
        letters,
        replayer,
        pipeline=config.pipeline,
        captures=lambda table: capture_settings(config, names.of(table), kind.policy),
        retry=retry_policy(config),
    )


def _refuse_ordered_mirrors(lake: Lake, config: Config, tables: Collection[str]) -> None:
    """A letter is older than what was captured since: a mirror that relies on order would stop."""
    for mirror, captured in load_captured_mirrors(lake, config).items():
        if captured.source in tables:
            settings = merge_settings(config, mirror, captured=captured)
            if settings.order is Order.APPEND:
                step = f"set order: per_key for {mirror}, or {command('resync', captured.source)}"
                raise _late(captured.source, mirror, step)


def refuse_ordered_tables(config: Config, tables: Collection[str]) -> None:
    """The same by the configuration alone, for letters that the next batches bring."""
    names = LakeNames(config)
    for table in sorted(tables):
        mirror = names.of(table).listed_as
        if table_settings(config, mirror).order is Order.APPEND:
            raise _late(table, mirror, f"set order: per_key for {mirror}")


def _late(table: str, mirror: str, step: str) -> ConfigError:
    message = f"its mirror {mirror} takes changes in their order, and these are late."
    return ConfigError(message, table=table, next_step=step)
