"""The buffer database as a kind of source; its events cannot be read yet."""

from __future__ import annotations

from frazil.sources.kind import SourceKind


class BufferKind(SourceKind):
    """One table of events."""

    name = "buffer"
