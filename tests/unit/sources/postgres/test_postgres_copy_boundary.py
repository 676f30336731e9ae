"""Which transactions a table takes that was copied: from its position on, that one included."""

from __future__ import annotations

from dataclasses import replace

import pytest

from frazil.codec.pgoutput.messages import Insert
from tests.support.postgres.stream import DEFAULT, ITEM, LSN, OID, new, read, transaction


@pytest.mark.parametrize(("lsn", "is_taken"), [(LSN - 1, False), (LSN, True), (LSN + 1, True)])
def test_a_transaction_that_begins_its_commit_at_the_position_is_taken(
    lsn: int, *, is_taken: bool
) -> None:
    messages = transaction(DEFAULT.relation, Insert(OID, new("1", "ice", "7")), lsn=lsn)
    found = read(*messages, tables=[replace(ITEM, after=LSN)])
    assert bool(found.rows) is is_taken
