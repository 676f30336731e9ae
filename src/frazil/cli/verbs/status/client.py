"""The client for /status of a running process."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from frazil.errors import ConfigError
from frazil.pipeline.status.json_form import status_from_json

if TYPE_CHECKING:
    from frazil.config import Config
    from frazil.pipeline.status.values import PipelineStatus

# An answer takes milliseconds; on a machine whose cores are all busy, seconds.
ANSWER_SECONDS: Final = 10.0
# Thousands of tables fit; what is larger is something else.
_LARGEST_ANSWER: Final = 64 * 2**20
# The address at which a server on every interface is reached.
_EVERY_INTERFACE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - connected to, not bound


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """No process answered, and why."""

    reason: str


def request_status(config: Config, *, seconds: float = ANSWER_SECONDS) -> PipelineStatus | NoAnswer:
    """Query the process of this configuration; raises ConfigError when it refuses our token."""
    host, port = config.telemetry.host, config.telemetry.port
    address = _EVERY_INTERFACE.get(host, host)
    where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    if port == 0:
        return NoAnswer(
            "telemetry.listen lets the system choose a port, so the process cannot be found"
        )
    if not config.telemetry.pages:
        return NoAnswer("telemetry.pages is false, so the process has no /status")
    token = config.telemetry.token
    headers = {"accept": "application/json", "host": where}
    if token is not None:
        # Bytes as they are: a token may be any text, a header only Latin-1.
        bearer = f"Bearer {token.get_secret_value()}".encode()
        headers["authorization"] = bearer.decode("latin-1")
    connection = http.client.HTTPConnection(address, port, timeout=seconds)
    try:
        connection.request("GET", "/status", headers=headers)
        answer = connection.getresponse()
        body = answer.read(_LARGEST_ANSWER)
    except (OSError, http.client.HTTPException):
        return NoAnswer(f"no process answers at {where}")
    finally:
        connection.close()
    return _understood(answer.status, body, where, config)


def _understood(code: int, body: bytes, where: str, config: Config) -> PipelineStatus | NoAnswer:
    if code == HTTPStatus.UNAUTHORIZED:
        message = f"the process at {where} does not take the token of this configuration."
        raise ConfigError(message, next_step="set telemetry.token to the one it was started with")
    if code == HTTPStatus.NOT_FOUND:
        return NoAnswer(f"the process at {where} serves no status")
    if code != HTTPStatus.OK:
        return NoAnswer(f"the process at {where} answers with {code}")
    try:
        status = status_from_json(json.loads(body))
    except ValueError:
        return NoAnswer(f"what answers at {where} is no status that this release can read")
    if status.pipeline != config.pipeline:
        return NoAnswer(f"another pipeline answers at {where}")
    return status
