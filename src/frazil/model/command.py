"""Commands for people to copy; the only module that writes and quotes them.

Names of tables are untrusted. One called ``x; curl … | sh #`` must not run when an operator copies
the command that repairs it.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from frazil.model.printable import printable

PROGRAM: Final = "frazil"
_ESCAPED: Final = re.compile(r"[\\']")


def command(*arguments: object) -> str:
    """``frazil`` with these arguments, as a shell reads them."""
    return " ".join((PROGRAM, *(quote_argument(str(each)) for each in arguments)))


def quote_argument(text: str) -> str:
    """One argument as a shell reads it, without anything that a terminal obeys."""
    if printable(text) == text and "`" not in text:
        return shlex.quote(text)
    # Between plain quotes such characters could only be as they are. Backticks mark a command in
    # our sentences, so that none may be in one.
    escaped = printable(_ESCAPED.sub(lambda found: chr(92) + found[0], text))
    return f"$'{escaped.replace('`', chr(92) + 'x60')}'"
