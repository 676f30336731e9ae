"""Numbers of the files that tasks write at the same time, without knowing of each other."""

from __future__ import annotations

import numpy as np
import pytest

from frazil.merge.writing.key_writer import ORDINALS_A_BLOCK, plan_ordinals

pytestmark = pytest.mark.fault("N31")


@pytest.mark.parametrize("tasks", [2, 3, 9])
def test_no_two_files_have_one_number_however_many_a_task_writes(tasks: int) -> None:
    counts = [0, 1, ORDINALS_A_BLOCK, 5 * ORDINALS_A_BLOCK + 7, 50_000]
    given = [
        plan_ordinals(np.arange(counts[task % len(counts)], dtype=np.int32), task, tasks)
        for task in range(tasks)
    ]
    everything = np.concatenate(given)
    assert len(np.unique(everything)) == len(everything)
    # Ordinals have 31 bits for all merges together: gaps stay within what the largest task needs.
    blocks = 1 + max(map(len, given)) // ORDINALS_A_BLOCK
    assert everything.max() < blocks * tasks * ORDINALS_A_BLOCK


def test_a_task_with_few_files_numbers_them_in_a_row() -> None:
    assert plan_ordinals(np.arange(3), 1, 4).tolist() == [
        ORDINALS_A_BLOCK,
        ORDINALS_A_BLOCK + 1,
        ORDINALS_A_BLOCK + 2,
    ]
