"""The contract suite: test classes that hold for every source, to be subclassed in its tests.

Start with ``under_test.py``, what a source lends the suite, then ``suite.py``. The other modules
are the forms that a source may have: ``copies``, ``tables`` that change or fail, ``partitions``
that begin live and are shared, ``records`` that are rejected. ``replay`` reads a source as the
pipeline does; ``histories`` makes up what happens to its tables.
"""
