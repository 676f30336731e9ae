"""The dead letters of a pipeline, wherever they are: in a table of the lake, or at the source."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from frazil.clients.iceberg.lake import Lake
from frazil.clients.spark.session import open_session
from frazil.errors import TableNotFoundError
from frazil.ingest.replay import ReplayReport
from frazil.ledger.dead_letters import DeadLetterTable
from frazil.pipeline.configured_source import configured_source
from frazil.pipeline.letters.replay import build_replay, refuse_ordered_tables
from frazil.pipeline.tables.captured_mirrors import dead_letters_name
from frazil.sources.letter_store import LetterStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from frazil.config import Config
    from frazil.model.records.dead_letter import DeadLetter
    from frazil.sources.letter_store import SourceLetters


class PipelineLetters(LetterStore, Protocol):
    """What an operator may do with them."""

    def prepare_replay(
        self, tables: Collection[str]
    ) -> Callable[[Sequence[DeadLetter]], ReplayReport]:
        """What replays letters of these tables; ConfigError if one of them cannot take them."""


class LakeLetters:
    """Those in a table of the lake."""

    def __init__(self, lake: Lake, config: Config, table: DeadLetterTable) -> None:
        self._lake = lake
        self._config = config
        self._table = table
        self.letters = table.letters
        self.payloads = table.payloads

    def drop(self, ids: Collection[str]) -> None:
        """Remove letters in one commit."""
        self._table.settle(ids, pipeline=self._config.pipeline)

    def prepare_replay(
        self, tables: Collection[str]
    ) -> Callable[[Sequence[DeadLetter]], ReplayReport]:
        """Rows are appended by this process."""
        return build_replay(self._lake, self._config, self._table, tables).replay


class LettersAtSource:
    """Those that the source keeps itself."""

    def __init__(self, config: Config, store: SourceLetters) -> None:
        self._config = config
        self._store = store
        self.letters = store.letters
        self.payloads = store.payloads
        self.drop = store.drop

    def prepare_replay(
        self, tables: Collection[str]
    ) -> Callable[[Sequence[DeadLetter]], ReplayReport]:
        """Rows are appended by the next batch of the ingest."""
        refuse_ordered_tables(self._config, tables)
        return self._replay

    def _replay(self, letters: Sequence[DeadLetter]) -> ReplayReport:
        ids = [each.id for each in letters]
        pending = self._store.replay(ids)
        return ReplayReport(
            pending=tuple(each for each in ids if each in pending),
            rejected=tuple(each for each in ids if each not in pending),
        )


@contextmanager
def opened_letters(config: Config) -> Iterator[PipelineLetters | None]:
    """The pipeline's dead letters; None while it has had none."""
    at_source = None if config.source is None else configured_source(config).dead_letters()
    if at_source is not None:
        with at_source as store:
            yield LettersAtSource(config, store)
        return
    with open_session(config) as session:
        lake = Lake(session, config.catalog.name)
        try:
            table = DeadLetterTable.open(lake, dead_letters_name(config))
        except TableNotFoundError:
            yield None
            return
        # Refuses those of another pipeline.
        table.position(config.pipeline)
        yield LakeLetters(lake, config, table)
