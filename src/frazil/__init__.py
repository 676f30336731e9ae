"""Streams of changes become Apache Iceberg tables."""

from frazil.errors import FrazilError
from frazil.version import __version__

__all__ = ["FrazilError", "__version__"]
