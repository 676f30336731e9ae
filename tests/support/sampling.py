"""How much of the long tests CI runs; ``make test-deep`` runs all of it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Container, Iterable


def sampled(cases: Iterable[Any], *, ci: Container[Any]) -> list[Any]:
    """All cases as parameters of a test; those that are not in ``ci`` are marked ``deep``."""
    return [each if each in ci else pytest.param(each, marks=pytest.mark.deep) for each in cases]


def examples(number: int) -> settings:
    """So many examples of a property in deep runs; a fifth of them in CI, others in every run."""
    return settings(max_examples=number if "FRAZIL_DEEP_SECONDS" in os.environ else number // 5)


def a_seed() -> int:
    """Another one in every run, printed so that a failure can be repeated."""
    seed = int(os.environ.get("FRAZIL_SEED", time.time_ns() % 2**32))
    print(f"FRAZIL_SEED={seed}")  # noqa: T201
    return seed
