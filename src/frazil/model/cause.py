"""Why work on a table or a source stopped: an error as fields that can be stored and compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frazil.errors import FrazilError


@dataclass(frozen=True, slots=True)
class Cause:
    """The code of an error, what went wrong, and what to do about it in this case."""

    code: str | None
    reason: str
    remedy: str | None = None

    @classmethod
    def of(cls, error: FrazilError) -> Cause:
        """From an error; its class has a general remedy where this one names none."""
        return cls(error.code, error.reason, error.next_step or error.remedy or None)

    def __str__(self) -> str:
        return self.reason if self.code is None else f"{self.code} {self.reason}"
