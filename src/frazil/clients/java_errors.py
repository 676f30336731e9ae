"""Translates Iceberg's exceptions to FrazilErrors, by their class and never by their text."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from frazil import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from frazil.errors import FrazilError

_ICEBERG = "org.apache.iceberg.exceptions."
_NOT_FOUND = frozenset(
    {
        f"{_ICEBERG}NoSuchTableException",
        f"{_ICEBERG}NoSuchNamespaceException",
        f"{_ICEBERG}NoSuchIcebergTableException",
        "org.apache.spark.sql.catalyst.analysis.NoSuchTableException",
        "org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException",
    }
)
_REFUSED = frozenset({f"{_ICEBERG}NotAuthorizedException", f"{_ICEBERG}ForbiddenException"})
_FILE_NOT_FOUND = f"{_ICEBERG}NotFoundException"
_STORAGE = frozenset(
    {
        f"{_ICEBERG}RuntimeIOException",
        "java.io.UncheckedIOException",
        "software.amazon.awssdk.services.s3.model.S3Exception",
        "software.amazon.awssdk.services.s3.model.NoSuchKeyException",
        "software.amazon.awssdk.services.s3.model.NoSuchBucketException",
        "software.amazon.awssdk.core.exception.SdkClientException",
    }
)

# Through Spark SQL, PySpark wraps Java's exception in its own.
JavaError: TypeAlias = Py4JError | PySparkException

# Deeper chains of causes are circular.
_DEEPEST_CAUSE = 12


def java_classes(error: JavaError) -> tuple[str, ...]:
    """The classes of a Java exception and its causes, outermost first; none without a JVM."""
    return tuple(name for name, _ in _chain(error))


def missing_file(error: JavaError) -> str | None:
    """Iceberg's message about a missing file: its path, and no content of any file."""
    return next((said for name, said in _chain(error) if name == _FILE_NOT_FOUND), None)


def _chain(error: JavaError) -> list[tuple[str, str]]:
    """Class and text of the exception and its causes."""
    links: list[tuple[str, str]] = []
    # Py4J keeps the exception under the first name, PySpark under the second.
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    try:
        while cause is not None and len(links) < _DEEPEST_CAUSE:
            links.append((cause.getClass().getName(), str(cause.getMessage())))
            cause = cause.getCause()
    except Py4JNetworkError:
        # The JVM died during the call; use what was collected so far.
        return links
    return links


@contextmanager
def translated(table: str, doing: str) -> Iterator[None]:
    """Translate what Iceberg or Spark throws inside the block to a FrazilError.

    The message names the operation and the Java class; the Java message, which may contain data,
    is only in the cause.
    """
    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise translate(error, table=table, doing=doing) from error


def translate(error: JavaError, *, table: str, doing: str) -> FrazilError:
    """The equivalent FrazilError."""
    names = java_classes(error)
    found = names[0].rpartition(".")[2] if names else type(error).__name__
    message = f"{doing} failed: {found}."
    if _NOT_FOUND.intersection(names):
        return errors.TableNotFoundError(f"{doing} failed: it is not in the catalog.", table=table)
    if _REFUSED.intersection(names):
        refused = f"{doing} failed: the catalog refused the credentials."
        return errors.PermissionError(refused, table=table, next_step="frazil check")
    if (missing := missing_file(error)) is not None:
        return gone_file(missing, table=table, doing=doing)
    if _STORAGE.intersection(names):
        return errors.StorageError(message, table=table)
    return errors.CatalogError(message, table=table)


def gone_file(missing: str, *, table: str, doing: str) -> errors.StorageError:
    """The error for a file that Iceberg did not find where the table says."""
    message = f"{doing} failed: a file of the table is gone ({missing})."
    error = errors.StorageError(message, table=table, next_step="restore the file")
    error.is_gone = True
    return error
