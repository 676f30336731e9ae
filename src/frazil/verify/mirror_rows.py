"""The rows of a mirror in the form in which they are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from frazil.merge.reading.expected_rows import DELETED, HI, LO
from frazil.mirror.index.key_expressions import key_hash_columns
from frazil.model.table_name import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from frazil.verify.compared_columns import ComparisonPlan


def mirror_rows(rows: DataFrame, comparison: ComparisonPlan, names: Mapping[str, str]) -> DataFrame:
    """Each row's hash, the columns that ``names`` calls otherwise, and whether it is deleted."""
    key = [(_column(name), type_) for name, type_ in comparison.mirror_key]
    hi, lo = key_hash_columns(key)
    is_deleted = sf.expr("false")
    if comparison.deleted is not None:
        is_deleted = sf.coalesce(_column(comparison.deleted), is_deleted)
    return rows.select(
        hi.alias(HI),
        lo.alias(LO),
        *(_column(name).alias(called) for name, called in names.items()),
        is_deleted.alias(DELETED),
    )


def _column(name: str) -> Column:
    return sf.col(quote(name))
