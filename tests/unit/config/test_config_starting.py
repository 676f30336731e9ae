"""The first document: it loads as it is, says what keys mean, and shows true defaults."""

from __future__ import annotations

import re
from functools import cache
from itertools import cycle, product
from typing import TYPE_CHECKING
from unittest.mock import patch

from frazil.config.loader import parse_config
from frazil.config.showing import config_schema, show_document
from frazil.config.starter_document import FirstAnswers, first_document
from frazil.model.policy import CatalogKind, FirstSource

if TYPE_CHECKING:
    from pathlib import Path

WAREHOUSES = ("./lake", "s3://bucket/lake", "gs://bucket/lake", "abfss://c@a.example/lake")
# Every source with every catalog; what a warehouse brings depends on neither.
EVERY = [
    FirstAnswers(pipeline="shop", source=source, catalog=catalog, warehouse=warehouse)
    for (source, catalog), warehouse in zip(
        product(FirstSource, CatalogKind), cycle(WAREHOUSES), strict=False
    )
]
HIDDEN = re.compile(r"(?m)^( *)# ([a-z0-9_]+:)")


@cache
def texts() -> list[tuple[FirstAnswers, str]]:
    # Which is the same for all of them.
    with patch("frazil.config.starter_document.config_schema", cache(config_schema)):
        return [(each, first_document(each)) for each in EVERY]


def meaning(text: str, answers: FirstAnswers, folder: Path) -> dict[str, str]:
    loaded = parse_config(text, folder / "frazil.yaml", environ=answers.variables)
    assert loaded.warnings == ()
    shown = {each.path: each.value for each in show_document(loaded)}
    # The one that depends on the source.
    return {**shown, "changelog.column_prefix": loaded.config.column_prefix}


def test_a_first_document_loads_and_commented_values_are_the_defaults(
    tmp_path: Path,
) -> None:
    for answers, text in texts():
        uncovered = HIDDEN.sub(r"\1\2", text)
        assert uncovered != text
        assert meaning(uncovered, answers, tmp_path) == meaning(text, answers, tmp_path)


def test_every_comment_is_a_description_of_the_models() -> None:
    schema = config_schema()
    sections = [schema, *schema["$defs"].values()]  # type: ignore[attr-defined]
    descriptions = {
        str(entry.get("description", "")).split("\n", maxsplit=1)[0]
        for section in sections
        for entry in (section, *section.get("properties", {}).values())
    }
    for _, text in texts():
        body = text.split("\n\n", maxsplit=1)[1]
        comments = [line.rpartition("  # ")[2] for line in body.splitlines() if "  # " in line]
        assert {each for each in comments if each[0].isupper()} <= descriptions


def test_nothing_secret_is_in_it_but_by_the_name_of_a_variable() -> None:
    text = first_document(FirstAnswers(pipeline="shop", dsn_variable="SHOP_DSN"))
    assert "dsn: ${SHOP_DSN}" in text


def test_it_has_no_more_than_three_screens() -> None:
    assert max(text.count("\n") for _, text in texts()) < 150
