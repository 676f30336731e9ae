"""Exceptions that are not ours, on the driver and in tasks: one rule for both.

What the machine does to any code, a lost connection or a full memory for instance, may pass. All
else is a defect of frazil's: it is named by its kind, its origin and a reference, not by its text,
because that may show a row.
"""

from __future__ import annotations

import hashlib
import re
import traceback

from py4j.protocol import Py4JError, Py4JJavaError

from frazil import errors

_OURS = re.compile(r"frazil/[a-z0-9_/]+\.py:\d+$")
_REFERENCE_DIGITS = 8


def is_environment(error: Exception) -> bool:
    """Whether this is a failure of the machine rather than of the code."""
    if isinstance(error, Py4JError):
        # Without a Java exception behind it, the connection to the JVM broke.
        return not isinstance(error, Py4JJavaError)
    return isinstance(error, OSError | MemoryError | EOFError) or _lacks_threads(error)


def _lacks_threads(error: Exception) -> bool:
    """Whether Arrow could not start a thread, which has no memory then; it has no class for it."""
    is_unknown = type(error).__name__ == "ArrowException"
    return is_unknown and "Resource temporarily unavailable" in str(error)


def origin_of(error: BaseException) -> str:
    """The kind of an exception and the last line of ours that it passed."""
    # The first one is where it was caught.
    frames = traceback.extract_tb(error.__traceback__)[1:]
    ours = [_OURS.search(f"{frame.filename}:{frame.lineno}") for frame in frames]
    origin = next((match[0] for match in reversed(ours) if match is not None), "no line of ours")
    return f"{type(error).__name__} at {origin}"


def defect(origin: str, *, table: str | None = None, doing: str = "") -> errors.DefectError:
    """A defect that arose there; the same one has the same reference wherever it is reported."""
    reference = hashlib.sha256(origin.encode()).hexdigest()[:_REFERENCE_DIGITS]
    while_doing = f" while {doing}" if doing else ""
    message = f"unexpected {origin}{while_doing} (reference {reference})."
    return errors.DefectError(message, table=table)


def as_ours(error: Exception, *, table: str | None = None, doing: str = "") -> errors.FrazilError:
    """The error itself if it is ours; else what it means, with the error as its cause."""
    if isinstance(error, errors.FrazilError):
        return error
    origin = origin_of(error)
    found: errors.FrazilError
    if is_environment(error):
        message = f"{doing or 'the work'} was cut short by {origin}."
        found = errors.WriteFailedError(message, table=table)
    else:
        found = defect(origin, table=table, doing=doing)
    found.__cause__ = error
    return found


def defect_of_table(error: Exception, table: str, doing: str) -> errors.DefectError:
    """A defect that concerns this table alone; what does not is raised again as it is."""
    if isinstance(error, errors.FrazilError) or is_environment(error):
        raise error
    # Its frames may hold rows and must not live as long as the table is paused.
    return defect(origin_of(error), table=table, doing=doing)
