"""What ``import frazil`` gives to programs and notebooks, and what it costs them."""

from __future__ import annotations

import subprocess
import sys

import pytest

import frazil


def test_importing_costs_neither_spark_nor_pydantic() -> None:
    program = (
        "import sys\nimport frazil\nfrazil.FrazilError, frazil.__version__, dir(frazil)\n"
        "heavy = {'pyspark', 'pydantic', 'pyarrow', 'numpy', 'structlog'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert finished.returncode == 0, finished.stderr


def test_a_report_is_had_without_spark() -> None:
    program = (
        "import sys\nfrom frazil import MergeReport, load_config\n"
        "heavy = {'pyspark', 'pyarrow', 'numpy'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert finished.returncode == 0, finished.stderr


def test_every_published_name_is_there_and_listed_in_order() -> None:
    assert frazil.__all__ == sorted(frazil.__all__)
    assert dir(frazil) == frazil.__all__
    for name in frazil.__all__:
        assert getattr(frazil, name) is not None


def test_a_name_that_is_not_published_is_missed_as_everywhere() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'merge_tables'"):
        frazil.merge_tables  # noqa: B018
