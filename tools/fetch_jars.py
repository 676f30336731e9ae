"""Fill the machine's cache with the jars a checkout needs; run by tools/bootstrap.py."""

from __future__ import annotations

import sys

from frazil.clients.cache import cache_directory
from frazil.clients.spark.jars import EVERY_JAR, ensure_jars, missing_jars
from frazil.clients.spark.java import find_java
from frazil.errors import RuntimeMissingError

# Agreed with tools/bootstrap.py.
NO_JAVA = 3


def main() -> int:
    """Exit 0 with every jar in the cache, NO_JAVA without a Java, 1 with one sentence otherwise."""
    try:
        find_java()
    except RuntimeMissingError:
        return NO_JAVA
    missing = missing_jars(*EVERY_JAR)
    if not missing:
        return 0
    print(
        f"setup: fetching {len(missing)} jars into {cache_directory()} (about 140 MB, once)",
        file=sys.stderr,
        flush=True,
    )
    try:
        ensure_jars(*EVERY_JAR)
    except RuntimeMissingError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
