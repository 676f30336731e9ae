"""Iceberg's exceptions become errors of the family, by their class and never by their text."""

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

# Asked through Spark, PySpark makes an exception of its own of Java's.
JavaError: TypeAlias = Py4JError | PySparkException

# Deeper chains of causes are circular or absurd.
_DEEPEST_CAUSE = 12


def java_classes(error: JavaError) -> tuple[str, ...]:
    """The classes of a Java exception and its causes, outermost first; none without a JVM."""
    return tuple(name for name, _ in _chain(error))


def missing_file(error: JavaError) -> str | None:
    """What Iceberg says of a file that is not there: its path, and nothing from inside any file."""
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
        # The JVM went away while it was asked; what it said so far is what there is.
        return links
    return links


@contextmanager
def translated(table: str, doing: str) -> Iterator[None]:
    """Whatever Iceberg or Spark throws inside the block leaves it as an error of ours.

    The message names what was being done and the Java class; its text, which may quote anything,
    stays with the cause.
    """
    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise translate(error, table=table, doing=doing) from error


def translate(error: JavaError, *, table: str, doing: str) -> FrazilError:
    """The error of ours that says the same."""
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
