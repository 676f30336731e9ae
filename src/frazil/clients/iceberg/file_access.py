"""How a table's files are reached, and when the credentials that its catalog vends are renewed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
# Between the prefix of the locations that a property is for, and its name: what tasks get stays one
# flat set of properties, and no property or location has this character.
_FOR = "\0"


def load_access(gateway: IcebergGateway, table: JavaObject) -> dict[str, str]:
    """The properties that open the table's files, wherever they are: see ``access_to``."""
    io = table.io()
    return with_credentials(gateway.to_json(io.properties()), gateway.storage_credentials(io))


def with_credentials(
    properties: Mapping[str, str], vended: Iterable[tuple[str, Mapping[str, str]]]
) -> dict[str, str]:
    """The properties, and what a catalog vends for locations that begin with a prefix."""
    of_prefixes = {
        f"{prefix}{_FOR}{name}": value
        for prefix, credential in vended
        for name, value in credential.items()
    }
    return {**properties, **of_prefixes}


def access_to(location: str, access: Mapping[str, str]) -> dict[str, str]:
    """The properties with those of the credential whose prefix fits best, as the protocol says.

    Data and metadata may be elsewhere than the table, under another prefix.
    """
    split = [(*name.rpartition(_FOR), value) for name, value in access.items()]
    best = max((each[0] for each in split if location.startswith(each[0])), key=len, default="")
    wanted = ("", ""), (best, _FOR)
    return {name: value for kind in wanted for *of, name, value in split if (*of,) == kind}


def is_vended(access: Mapping[str, str]) -> bool:
    """Whether the access to any of the files ends by itself."""
    return any(_VENDED.match(name.rpartition(_FOR)[2]) for name in access)


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
        stated = [
            value for name, value in access.items() if _ENDS.fullmatch(name.rpartition(_FOR)[2])
        ]
        ends = [int(value) / 1000 - now for value in stated if value.isdecimal()]
        return min([RENEWED_AFTER_SECONDS, *(each / 2 for each in ends)])
