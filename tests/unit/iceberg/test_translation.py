"""Java's exceptions classified by class, with fakes of the gateway's objects."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JJavaError

from frazil import errors
from frazil.clients.java_errors import java_classes, translate, translated
from tests.unit.iceberg.java_errors import FakeException, thrown

ICEBERG = "org.apache.iceberg.exceptions."


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((f"{ICEBERG}NoSuchTableException",), errors.TableNotFoundError),
        (("java.lang.RuntimeException", f"{ICEBERG}NoSuchNamespaceException"),
         errors.TableNotFoundError),
        ((f"{ICEBERG}NotAuthorizedException",), errors.PermissionError),
        ((f"{ICEBERG}ForbiddenException",), errors.PermissionError),
        (("java.io.UncheckedIOException",), errors.StorageError),
        (("java.lang.RuntimeException", "software.amazon.awssdk.services.s3.model.S3Exception"),
         errors.StorageError),
        ((f"{ICEBERG}ServiceFailureException",), errors.CatalogError),
        (("org.apache.iceberg.jdbc.UncheckedSQLException",), errors.CatalogError),
    ],
)  # fmt: skip
def test_the_class_decides(names: tuple[str, ...], expected: type[errors.FrazilError]) -> None:
    error = translate(thrown(*names), table="a.t", doing="opening the table")
    assert type(error) is expected
    assert error.table == "a.t"
    assert str(error).startswith("a.t: opening the table failed")
    assert "secret text" not in str(error)


def test_a_missing_file_is_named() -> None:
    error = thrown("java.lang.RuntimeException", f"{ICEBERG}NotFoundException")
    translated_ = translate(error, table="a.t", doing="refreshing the table")
    assert type(translated_) is errors.StorageError
    assert f"gone (text of {ICEBERG}NotFoundException)" in str(translated_)


def test_circular_causes_end() -> None:
    first = FakeException("a.B")
    first._cause = first
    error = Py4JJavaError.__new__(Py4JJavaError)
    error.java_exception = first
    assert set(java_classes(error)) == {"a.B"}


def test_an_error_of_the_gateway_itself_is_a_catalog_error() -> None:
    with (
        pytest.raises(errors.CatalogError, match=r"refreshing failed: Py4JError\.") as caught,
        translated("a.t", "refreshing"),
    ):
        raise Py4JError("gone")
    assert isinstance(caught.value.__cause__, Py4JError)
