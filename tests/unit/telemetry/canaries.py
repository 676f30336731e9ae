"""Errors with a planted secret in every corner where one can hide."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

from py4j.protocol import STRING_TYPE, SUCCESS, Py4JJavaError, escape_new_line

# No pattern would find it: only its being learnt protects it.
CANARY = "canary-5d0f'\"\\{/ü"
CANARY_PART = "canary-5d0f"


def _raise(error: Exception, cause: Exception | None = None) -> None:
    if cause is not None:
        raise error from cause
    raise error


def error_with_cause_and_context() -> Exception:
    inner = OSError(f"cause {CANARY}")
    try:
        _raise(KeyError(f"context {CANARY}"))
    except KeyError:
        with contextlib.suppress(OSError):
            _raise(inner)
    try:
        _raise(RuntimeError(f"top {CANARY}"), inner)
    except RuntimeError as error:
        error.add_note(f"note {CANARY}")
        return error
    raise AssertionError


def error_group() -> Exception:
    inner = [ValueError(f"one {CANARY}"), error_with_cause_and_context()]
    return ExceptionGroup(f"group {CANARY}", inner)


class FakeGateway:
    """Answers like py4j's client to a request for the text of a Java exception."""

    def send_command(self, _command: str) -> str:
        trace = f"java.lang.IllegalStateException: {CANARY}\n\tat org.apache.X.y(X.java:1)"
        return str(SUCCESS + STRING_TYPE + escape_new_line(trace))


def java_error() -> Exception:
    java_exception = SimpleNamespace(_target_id="o1", _gateway_client=FakeGateway())
    error: Exception = Py4JJavaError(f"An error occurred, {CANARY}", java_exception)
    return error


def java_error_without_a_jvm() -> Exception:
    def fail(_command: str) -> str:
        _raise(ConnectionRefusedError(f"no gateway for {CANARY}"))
        return ""

    gateway = SimpleNamespace(send_command=fail)
    java_exception = SimpleNamespace(_target_id="o1", _gateway_client=gateway)
    error: Exception = Py4JJavaError(f"An error occurred, {CANARY}", java_exception)
    return error


def every_error() -> list[Exception]:
    return [
        error_with_cause_and_context(),
        error_group(),
        java_error(),
        java_error_without_a_jvm(),
    ]
