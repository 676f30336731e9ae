"""The bill of materials of an installed environment, as CycloneDX: packages and jars.

Runs in the image as well, with nothing but the environment that it describes.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import distributions
from pathlib import Path

from frazil.clients.spark.jars import PRODUCTION_JARS
from frazil.version import __version__


def main() -> int:
    """Write the document to the path that is given."""
    (target,) = sys.argv[1:]
    Path(target).write_text(json.dumps(bill_of_materials(), indent=1) + "\n", encoding="utf-8")
    return 0


def bill_of_materials() -> dict[str, object]:
    """CycloneDX 1.6, in a stable order."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": "frazil",
                "version": __version__,
                "purl": f"pkg:pypi/frazil@{__version__}",
            }
        },
        "components": [*_packages(), *_jars()],
    }


def _packages() -> list[dict[str, object]]:
    found = {
        re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower(): each.version
        for each in distributions()
    }
    return [
        {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
        }
        for name, version in sorted(found.items())
        if name != "frazil"
    ]


def _jars() -> list[dict[str, object]]:
    return [
        {
            "type": "library",
            "group": jar.organisation,
            "name": jar.name,
            "version": jar.revision,
            "purl": f"pkg:maven/{jar.organisation}/{jar.name}@{jar.revision}",
            "hashes": [{"alg": "SHA-256", "content": jar.sha256}],
        }
        for group in PRODUCTION_JARS
        for jar in group
    ]


if __name__ == "__main__":
    sys.exit(main())
