"""Write deploy/kubernetes from the chart, for those who apply files: one description, two forms."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

from tools.bootstrap import ROOT
from tools.deploy.deploy_tools import helm

if TYPE_CHECKING:
    from pathlib import Path

CHART = ROOT / "deploy" / "chart" / "frazil"
# Each file, and the values that it is rendered from.
MANIFESTS = {
    "run.yaml": "run-values.yaml",
    "roles.yaml": "roles-values.yaml",
    "merge-cronjob.yaml": "cronjob-values.yaml",
    "maintain-cronjob.yaml": "upkeep-values.yaml",
    "kafscale.yaml": "kafscale-values.yaml",
}
_HEADER = """\
# Made by tools/deploy/plain_manifests.py from deploy/chart: change the chart instead.
# Replace the document in the ConfigMap by yours, make the Secret that it names, then
#   kubectl apply --namespace YOURS -f deploy/kubernetes/{name}
"""
# Helm's own marks mean nothing to others.
_MARKS = re.compile(
    r"(?m)^ *(?:app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n|^# Source: .*\n"
)


def main() -> int:
    """Write every file; exit 1 without helm."""
    program = helm()
    if program is None:
        print("manifests: helm is missing; run: make test-deploy", file=sys.stderr)
        return 1
    folder = ROOT / "deploy" / "kubernetes"
    folder.mkdir(parents=True, exist_ok=True)
    for name in MANIFESTS:
        (folder / name).write_text(manifest_text(program, name), encoding="utf-8")
    return 0


def manifest_text(program: Path, name: str) -> str:
    """The text of one file."""
    values = str(CHART / "ci" / MANIFESTS[name])
    command = [str(program), "template", "frazil", str(CHART), "--values", values]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return _HEADER.format(name=name) + _MARKS.sub("", rendered)


if __name__ == "__main__":
    sys.exit(main())
