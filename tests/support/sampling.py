"""Long lists of cases: CI runs one case of each class, and ``make test-deep`` runs the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Container, Iterable


def sampled(cases: Iterable[Any], *, ci: Container[Any]) -> list[Any]:
    """All cases as parameters of a test; those that are not in ``ci`` are marked ``deep``."""
    return [each if each in ci else pytest.param(each, marks=pytest.mark.deep) for each in cases]
