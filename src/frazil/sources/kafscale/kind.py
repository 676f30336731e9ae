"""KafScale as a kind of source; its records cannot be read yet."""

from __future__ import annotations

from frazil.sources.kind import SourceKind


class KafscaleKind(SourceKind):
    """Topics of one cluster."""

    name = "kafscale"
