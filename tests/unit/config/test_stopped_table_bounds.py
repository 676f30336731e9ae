"""What a paused table may cost: log at the server, and reading it again at every start."""

from __future__ import annotations

import pytest

from frazil.config.models.postgres_source import OnStoppedTable

pytestmark = pytest.mark.fault("N45")


def test_a_start_reads_no_more_again_than_a_server_decodes_in_seconds() -> None:
    assert OnStoppedTable().most_bytes == 2**30


@pytest.mark.parametrize(("hold", "reread", "most"), [(5, 9, 5), (9, 5, 5), (7, 7, 7)])
def test_whichever_bound_is_reached_first_counts(hold: int, reread: int, most: int) -> None:
    assert OnStoppedTable(hold=hold, reread=reread).most_bytes == most
