"""Column names that are taken: Spark would not know which of the two is meant."""

from __future__ import annotations

# In front of every column that a merge adds on its way through Spark.
OWN_PREFIX = "__frazil_"
# Iceberg shows them with every table; the index is built from the first two.
_METADATA = frozenset(
    {
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_partition",
        "_row_id",
        "_last_updated_sequence_number",
        "_change_type",
        "_change_ordinal",
        "_commit_snapshot_id",
    }
)


def why_reserved(name: str) -> str | None:
    """Why a table cannot have a column of this name, or None; Spark ignores case."""
    if name.lower() in _METADATA:
        return "Iceberg has a metadata column of this name"
    if name.lower().startswith(OWN_PREFIX):
        return f"names that begin with {OWN_PREFIX} are kept for merges"
    return None
