"""``python -m benchmarks [NAME …]``: run them, print a table, write benchmarks/results."""

from __future__ import annotations

import sys

from benchmarks import commits, startup, writer
from benchmarks.report import Report, print_report, write_report

BENCHMARKS = {"startup": startup.measure, "commits": commits.measure, "writer": writer.measure}


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all of them."""
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        known = ", ".join(BENCHMARKS)
        print(f"no benchmark {', '.join(sorted(unknown))}; there are: {known}", file=sys.stderr)
        return 2
    for name in names or BENCHMARKS:
        report: Report = BENCHMARKS[name]()
        print_report(name, report)
        write_report(name, report)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
