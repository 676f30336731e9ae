"""The one way in which decoding refuses bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Enough to recognise a foreign name, too little to flood a log.
_LONGEST_QUOTE = 40


class MalformedFileError(Exception):
    """Bytes are not what their format promises: what was expected, and where.

    Callers know which file it was and translate this into an error of the family. ``what`` holds
    names, counts and positions of the format, never a value from a row; ``offset`` counts from the
    start of what was decoded.
    """

    def __init__(self, what: str, *, offset: int) -> None:
        super().__init__(what, offset)
        self.what = what
        self.offset = offset

    def __str__(self) -> str:
        return f"at byte {self.offset}: {self.what}"

    def __reduce__(self) -> tuple[object, ...]:
        # The default would pass the offset by position, which the constructor does not take.
        return (_rebuild, (type(self), self.what, self.offset))


def _rebuild(cls: type[MalformedFileError], what: str, offset: int) -> MalformedFileError:
    return cls(what, offset=offset)


def refuse_where(wrong: NDArray[np.bool_], at: NDArray[np.int64], what: str) -> None:
    """Raise MalformedFileError with the first offset that is wrong, if there is one."""
    if wrong.any():
        raise MalformedFileError(what, offset=int(at[wrong.argmax()]))


def quoted(name: str) -> str:
    """A name out of a file, safe to show: escaped and short."""
    shown = ascii(name)
    return shown if len(shown) <= _LONGEST_QUOTE else f"{shown[:_LONGEST_QUOTE]}…"
