from __future__ import annotations

import pytest

from frazil.errors import ConfigError
from frazil.model.table_name import TableName, parse_table_name, quote


def test_a_name_is_read_as_configurations_write_it() -> None:
    name = parse_table_name("public.users", catalog="lake")
    assert name == TableName("lake", ("public",), "users")
    assert str(name) == "public.users"
    assert name.quoted == "`lake`.`public`.`users`"
    assert name.quoted_namespace == "`lake`.`public`"
    assert parse_table_name("a.b.c", catalog="lake").namespace == ("a", "b")


@pytest.mark.parametrize(
    "part",
    ["users; drop table x", "`quoted`", 'a"b', "ünïcödé", "表", "a b", "x" * 200, "--", "a'b"],
)
def test_strange_names_are_quoted(part: str) -> None:
    quoted = TableName("lake", ("ns",), part).quoted
    inner = quoted.removeprefix("`lake`.`ns`.`").removesuffix("`")
    assert inner.replace("``", "").count("`") == 0
    assert inner.replace("``", "`") == part


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        (".", "another folder"),
        ("..", "another folder"),
        ("a/b", "another folder"),
        ("a\\b", "another folder"),
        ("a.b", "holds a dot"),
        ("a\0b", "control character"),
        ("a\nb", "control character"),
        ("x" * 201, "longer than 200 bytes"),
        ("表" * 67, "longer than 200 bytes"),
    ],
)
def test_names_that_would_mean_something_else_are_refused_by_name(part: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        TableName("lake", ("ns",), part)
    with pytest.raises(ConfigError, match=reason):
        TableName("lake", (part,), "t")


def test_a_table_without_a_namespace_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no namespace"):
        parse_table_name("users", catalog="lake")


def test_a_quote_inside_a_name_is_doubled() -> None:
    assert quote("a`b") == "`a``b`"
