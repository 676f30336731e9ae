"""Partition and sort expressions in the document: read here only to refuse what is wrong."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from frazil.config.models.values import Name, refuse
from frazil.model.schema.layout_expressions import parse_partition_term, parse_sort_term


def _check_partition(text: str) -> str:
    try:
        parse_partition_term(text)
    except ValueError as error:
        sentence = f"must be {error}"
        raise refuse(sentence) from None
    return text


def _check_sort(text: str) -> str:
    try:
        parse_sort_term(text)
    except ValueError as error:
        sentence = f"must be {error}; asc or desc and nulls first or nulls last may follow"
        raise refuse(sentence) from None
    return text


PartitionExpression = Annotated[Name, AfterValidator(_check_partition)]
SortExpression = Annotated[Name, AfterValidator(_check_sort)]
