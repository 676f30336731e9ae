"""Whether changes are lost: the slot's word alone is not enough."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from frazil.errors import PositionLostError, SlotBusyError
from frazil.ingest.ledger_cache import LedgerCache, confirming_loss

pytestmark = pytest.mark.fault("N2", "N56")


def judge(*, moves: bool) -> None:
    ledger = SimpleNamespace(acknowledged="0/10")

    def read_again() -> None:
        if moves:
            ledger.acknowledged = "0/20"

    with confirming_loss(cast("LedgerCache", ledger), read_again):
        raise PositionLostError("the slot was confirmed up to 0/20.")


def test_a_ledger_that_moved_meanwhile_means_that_another_process_works() -> None:
    with pytest.raises(SlotBusyError, match="another process moved the ledger"):
        judge(moves=True)


def test_a_ledger_that_stays_behind_the_slot_means_that_changes_are_lost() -> None:
    with pytest.raises(PositionLostError):
        judge(moves=False)
