"""How tests start processes with a JVM of their own."""

from __future__ import annotations

from tests.support.process.class_archive import archive_option

# Collecting with many threads pays off on many cores, and there are two.
# Such a process lives for seconds: what the second compiler makes of its code comes too late to be
# used, and takes a third of its time. So do the sessions of the tests, a quarter of theirs. Both
# compilers have the processes that must start as users start them: canaries, locked-down users.
# With one compiler, Java sets 48 MiB aside for its code. Spark fills them within a minute, and from
# then on throws away what it will compile again.
_ONE_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
QUICK_JAVA = _ONE_COMPILER + archive_option()
