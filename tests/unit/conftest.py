"""What tests of commands share."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
import typer.main

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def _commands_are_built_once() -> Iterator[None]:
    """Typer makes all commands again for each one that runs, which takes longer than most do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield
