"""A change at the source: what it did to its row, and its position in the order of all changes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# The widths of the text: four digits of epoch, sixteen each of position and ordinal.
_MOST_EPOCHS = 0xFFFF
_LARGEST = 2**64 - 1


class Operation(StrEnum):
    """What a change did; the values are those a changelog holds."""

    READ = "READ"
    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    TRUNCATE = "TRUNCATE"


# Debezium's letters and the initials other writers use; compared without regard to case.
_SPELLINGS = {
    **{operation.value: operation for operation in Operation},
    "R": Operation.READ,
    "C": Operation.INSERT,
    "I": Operation.INSERT,
    "U": Operation.UPDATE,
    "D": Operation.DELETE,
    "T": Operation.TRUNCATE,
}


def spellings(operation: Operation) -> tuple[str, ...]:
    """Every spelling of this operation, in capitals."""
    return tuple(text for text, meant in _SPELLINGS.items() if meant is operation)


@dataclass(frozen=True, slots=True, order=True)
class SequenceNumber:
    """The position of a change among all changes of its table; compares in source order.

    The epoch rises with every resync and whenever the server's identity or timeline changes, so
    that a source that was restored never sorts below its own past. The text sorts the same way.
    """

    epoch: int
    position: int
    ordinal: int

    def __post_init__(self) -> None:
        in_range = (
            0 <= self.epoch <= _MOST_EPOCHS
            and 0 <= self.position <= _LARGEST
            and 0 <= self.ordinal <= _LARGEST
        )
        if not in_range:
            message = f"epoch {self.epoch}, position {self.position}, ordinal {self.ordinal}"
            raise ValueError(message)

    def __str__(self) -> str:
        return f"{self.epoch:04x}/{self.position:016x}/{self.ordinal:016x}"
