"""Programs that tools start, and what is said when one fails."""

from __future__ import annotations

import subprocess


class CommandError(Exception):
    """A program failed; it has said why."""

    def __init__(self, command: list[str], output: str) -> None:
        super().__init__(f"{command[0]} failed:\n{output}")
        # Programs say the reason last.
        self.last_line = (output.strip().splitlines() or ["without a word"])[-1]


def output_of(command: list[str]) -> str:
    """What a program prints. Raises CommandError with all that it said."""
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise CommandError(command, finished.stdout + finished.stderr)
    return finished.stdout
