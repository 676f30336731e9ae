"""Commands of ours for people to copy: the one place that writes them, and quotes what is in them.

Names of tables come from strangers. One called ``x; curl … | sh #`` must not run when somebody
copies the command that heals it.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from frazil.model.printable import printable

PROGRAM: Final = "frazil"
_ESCAPED: Final = re.compile(r"[\\']")


def command(*words: object) -> str:
    """``frazil`` with these words, as a shell reads them."""
    return " ".join((PROGRAM, *(quote_word(str(word)) for word in words)))


def quote_word(word: str) -> str:
    """One word as a shell reads it, without anything that a terminal obeys."""
    if printable(word) == word and "`" not in word:
        return shlex.quote(word)
    # Between plain quotes such characters could stand only as they are. Backticks mark a command
    # in our sentences, so that none may be in one.
    escaped = printable(_ESCAPED.sub(lambda found: chr(92) + found[0], word))
    return f"$'{escaped.replace('`', chr(92) + 'x60')}'"
