"""How a table's files are reached, and when the credentials that its catalog vends are renewed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frazil.clients.iceberg.gateway import IcebergGateway, JavaObject
    from frazil.hooks import Clock

# Credentials that expire. Their expiry comes with them, or not at all.
_VENDED = re.compile(r"s3\.session-token|gcs\.oauth2\.token|adls\.sas-token\.")
_ENDS = re.compile(
    r"s3\.session-token-expires-at-ms|gcs\.oauth2\.token-expires-at"
    r"|adls\.sas-token-expires-at-ms\..*"
)
# No catalog vends for less than a few minutes: a quarter of an hour is the least that Amazon makes.
RENEWED_AFTER_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class StorageCredential:
    """What a catalog vends for the locations that begin with the prefix."""

    prefix: str
    properties: Mapping[str, str] = field(repr=False)


def load_access(gateway: IcebergGateway, table: JavaObject, location: str) -> dict[str, str]:
    """The properties that open the files at the location."""
    io = table.io()
    vended = [StorageCredential(*each) for each in gateway.storage_credentials(io)]
    return access_to(location, gateway.to_json(io.properties()), vended)


def access_to(
    location: str, properties: Mapping[str, str], credentials: Sequence[StorageCredential]
) -> dict[str, str]:
    """The properties with those of the credential whose prefix fits best, as the protocol says."""
    fitting = [each for each in credentials if location.startswith(each.prefix)]
    best = max(fitting, key=lambda each: len(each.prefix), default=None)
    return {**properties, **(best.properties if best is not None else {})}


def is_vended(access: Mapping[str, str]) -> bool:
    """Whether the access ends by itself."""
    return any(_VENDED.match(name) for name in access)


class Renewal:
    """When a table with vended credentials must be loaded again, counted from its loading."""

    def __init__(self, access: Mapping[str, str], clock: Clock) -> None:
        self._clock = clock
        self._due = None
        if is_vended(access):
            self._due = clock.monotonic() + self._seconds(access)

    def is_due(self) -> bool:
        """Half of the time is over, so that work which begins now can end."""
        return self._due is not None and self._clock.monotonic() >= self._due

    def _seconds(self, access: Mapping[str, str]) -> float:
        now = self._clock.now().timestamp()
        stated = [value for name, value in access.items() if _ENDS.fullmatch(name)]
        ends = [int(value) / 1000 - now for value in stated if value.isdecimal()]
        return min([RENEWED_AFTER_SECONDS, *(each / 2 for each in ends)])
