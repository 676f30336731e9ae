"""Names reach the server as names, whatever is in them."""

from __future__ import annotations

import pytest

from frazil.model.postgres.names import QualifiedName, quote_identifier, quote_literal


def test_quotes_are_doubled_and_nothing_else_changes() -> None:
    assert quote_identifier('a"; drop table b; --') == '"a""; drop table b; --"'
    assert quote_literal("it's \\") == "'it''s \\'"
    name = QualifiedName("my schema", 'a"b')
    assert name.quoted == '"my schema"."a""b"'
    assert str(name) == 'my schema.a"b'


@pytest.mark.parametrize("quote", [quote_identifier, quote_literal])
def test_nul_would_end_the_statement_and_is_refused(quote: object) -> None:
    assert callable(quote)
    with pytest.raises(ValueError, match="NUL"):
        quote("a\0b")
