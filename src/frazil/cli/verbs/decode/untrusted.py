"""Text of files that nobody vouches for, in a form that is safe to print."""

from __future__ import annotations


def shown(text: str) -> str:
    """Text without control characters."""
    return text if text.isprintable() else ascii(text)
