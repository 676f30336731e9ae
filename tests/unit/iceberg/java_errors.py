"""Stand-ins for the exceptions that the gateway hands out."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError


class FakeClass:
    def __init__(self, name: str) -> None:
        self._name = name

    def getName(self) -> str:  # noqa: N802 - Java's name
        return self._name


class FakeException:
    """As much of a Java exception as is asked for."""

    _target_id = "o1"
    _gateway_client = None

    def __init__(self, name: str, cause: FakeException | None = None) -> None:
        self._class, self._cause = FakeClass(name), cause

    def getClass(self) -> FakeClass:  # noqa: N802 - Java's name
        return self._class

    def getMessage(self) -> str:  # noqa: N802 - Java's name
        return f"text of {self._class.getName()}"

    def getCause(self) -> FakeException | None:  # noqa: N802 - Java's name
        return self._cause


def thrown(*names: str) -> Py4JJavaError:
    """An error whose causes are of these classes, outermost first."""
    cause: FakeException | None = None
    for name in reversed(names):
        cause = FakeException(name, cause)
    error = Py4JJavaError.__new__(Py4JJavaError)
    error.java_exception = cause
    error.args = ("secret text of the exception",)
    return error
