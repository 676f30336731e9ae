"""How tests start processes with a JVM of their own."""

from __future__ import annotations

# Collecting with many threads pays off on many cores, and there are two.
# Such a process lives for seconds: what the second compiler makes of its code comes too late to be
# used, and takes a third of its time. So do the sessions of the tests, a quarter of theirs. Both
# compilers have the processes that shall start as users start them: canaries, spark-submit, others.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
