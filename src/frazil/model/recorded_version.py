"""What a newer frazil wrote down is left alone: reading it as far as it goes would be a guess."""

from __future__ import annotations

import json

NEWER_STEP = "install the frazil that wrote it, or a newer one: this one would lose what it says"


def newer_version(text: str, known: int) -> int | None:
    """The version that a recorded JSON document names, if it is newer than the known one."""
    try:
        document = json.loads(text)
    except ValueError:
        return None
    found = document.get("version") if isinstance(document, dict) else None
    is_newer = isinstance(found, int) and not isinstance(found, bool) and found > known
    return found if is_newer else None
