"""Settings every test shares, and the order in which workers take the files."""

from __future__ import annotations

import gc

import pytest
from hypothesis import HealthCheck, settings

from tests.support.reporting import RunReporting
from tests.support.sampling import examples

# Here, so that all suites of a worker share them: an idle service still costs.
from tests.support.services import (
    etcd,
    file_catalog,
    object_store,
    postgres,
    postgres_16,
    s3_catalog,
    shared_folder,
)

__all__ = [
    "etcd",
    "file_catalog",
    "object_store",
    "postgres",
    "postgres_16",
    "s3_catalog",
    "shared_folder",
]

# Before a test imports it: its assertions show what they compared, as those of tests do.
pytest.register_assert_rewrite("frazil.testing.contract")

# The machine may be busy: a slow example is not a failure, and the seed is printed with each one.
PATIENT = settings(examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("frazil", PATIENT, print_blob=True)
settings.load_profile("frazil")

# The files that take a minute or more: first those with processes of their own, before there is a
# session beside them, then the longest. One that is missing costs nothing but time: taken last, it
# is run by one worker while the others have nothing to do.
LONGEST = (
    "test_other_masters",
    "test_installed_wheel",
    "test_rolling_update",
    "test_soak",
    "test_run_process",
    "test_demo",
    "test_deployed_process",
    "test_tutorial",
    "test_merge_model",
    "test_remedies_captured",
    "test_verify_source",
    "test_catalog_faults",
    "test_postgres_faults",
    "test_store_faults",
    "test_merge_foreign",
    "test_verifying",
    "test_remedies",
    "test_merge_verbs",
    "test_merge_changelogs",
    "test_merge_index_trust",
    "test_ingest_in_memory",
    "test_merge_maintenance",
    "test_rollbacks_and_expiry",
)


def pytest_configure(config: pytest.Config) -> None:
    """Reports of all workers come to the process that started them."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(RunReporting(config))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with a session come last, the longest files first.

    A worker that has a session keeps it. As every worker takes files in this order, no test of the
    services finds the session's JVM among the processes it looks at.
    """
    items.sort(key=_turn)


def pytest_collection_finish() -> None:
    """What was loaded by now stays: after tests with Spark, garbage is looked for in the rest."""
    gc.collect()
    gc.freeze()


def _turn(item: pytest.Item) -> tuple[bool, int]:
    if item.get_closest_marker("spark") is None:
        return False, 0
    name = item.path.stem
    return True, LONGEST.index(name) if name in LONGEST else len(LONGEST)
