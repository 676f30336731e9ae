"""A root file system of Debian packages with Python, and with how this machine reaches registries.

It stands for the base image of a company: certificates and the addresses of package indexes are the
machine's own, so that nothing of them is in a file of this repository.
"""

from __future__ import annotations

import os
import tempfile
from configparser import ConfigParser
from pathlib import Path
from typing import TYPE_CHECKING

from tools.bootstrap import say
from tools.commands import output_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SUITE = "bookworm"
PACKAGES = "python3,python3-venv,ca-certificates"
# As the slim images do.
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
_CERTIFICATES = Path("/usr/local/share/ca-certificates")
_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
_PIP_KEYS = ("index-url", "extra-index-url", "trusted-host", "proxy")
_APT_KEYS = ("Acquire::http::Proxy", "Acquire::https::Proxy", "Acquire::Check-Valid-Until")


def make_base(archive: Path) -> None:
    """Write the file system into this archive."""
    say("making a base from Debian packages (half a minute)")
    with tempfile.TemporaryDirectory(prefix="frazil-base-") as scratch:
        pip = Path(scratch) / "pip.conf"
        pip.write_text(_pip_configuration(), encoding="utf-8")
        hooks = [f"copy-in {pip} /etc"]
        if any(_CERTIFICATES.glob("*.crt")):
            hooks.append(f"copy-in {_CERTIFICATES} {_CERTIFICATES.parent}")
        hooks.append('chroot "$1" update-ca-certificates')
        output_of(
            ["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}",
             *(f"--dpkgopt=path-exclude={each}" for each in _LEFT_OUT),
             *(f"--aptopt={each}" for each in _apt_settings()),
             *(f"--customize-hook={each}" for each in hooks),
             SUITE, str(archive)]
        )  # fmt: skip


def _pip_configuration() -> str:
    """What pip is given on this machine, by file or variable, with the base's own certificates."""
    configured = ConfigParser(interpolation=None)
    configured.read("/etc/pip.conf")
    lines = ["[global]", f"cert = {_BUNDLE}"]
    for key in _PIP_KEYS:
        variable = f"PIP_{key.replace('-', '_').upper()}"
        value = os.environ.get(variable) or configured.get("global", key, fallback="")
        if value:
            lines.append(f"{key} = {value}")
    return "\n".join(lines) + "\n"


def _apt_settings() -> Iterator[str]:
    for line in output_of(["apt-config", "dump"]).splitlines():
        if line.startswith(_APT_KEYS):
            yield line.rstrip(";")
