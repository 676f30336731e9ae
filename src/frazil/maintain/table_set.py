"""The tables of a pipeline and their upkeep: which there are, and which mirror reads which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil.maintain.facts import KeptRole
    from frazil.maintain.settings import UpkeepSettings
    from frazil.model.table_name import TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTable:
    """One table; ``mirrors`` are all that merge from it, if it is a changelog."""

    name: TableName
    role: KeptRole
    settings: UpkeepSettings
    mirrors: tuple[TableName, ...] = ()
