"""``python -m benchmarks [NAME …]``: run them, print a table, write benchmarks/results."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import (
    buffer,
    change_stream,
    commits,
    endurance,
    kafscale,
    key_index,
    latency,
    maintain,
    mirror_read,
    overhead,
    startup,
    table_copy,
    writer,
)
from benchmarks.merge import (
    merge_bulk,
    merge_flat,
    merge_memory,
    merge_partitioned,
    merge_tail,
    merge_text_key,
)
from benchmarks.support.bench_lake import open_bench_lake
from benchmarks.support.report import RESULTS, Report, print_report, write_report
from benchmarks.support.setting import Setting, Size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BENCHMARKS: dict[str, Callable[[Setting], Report]] = {
    "startup": startup.measure,
    "commits": commits.measure,
    "writer": writer.measure,
    "merge-flat": merge_flat.measure,
    "merge-bulk": merge_bulk.measure,
    "merge-memory": merge_memory.measure,
    "merge-partitioned": merge_partitioned.measure,
    "merge-text-key": merge_text_key.measure,
    "merge-tail": merge_tail.measure,
    "index": key_index.measure,
    "read": mirror_read.measure,
    "maintain": maintain.measure,
    "endurance": endurance.measure,
    "overhead": overhead.measure,
    "copy": table_copy.measure,
    "stream": change_stream.measure,
    "kafscale": kafscale.measure,
    "buffer": buffer.measure,
    "latency": latency.measure,
}
# Those that start sessions of their own, which another one would hinder.
_ALONE = ("startup", "commits", "writer")


def main(arguments: Sequence[str]) -> int:
    """Run the named benchmarks, or all of them."""
    options = _parser().parse_args(arguments)
    names = options.names or list(BENCHMARKS)
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        known = ", ".join(BENCHMARKS)
        print(f"no benchmark {', '.join(unknown)}; there are: {known}", file=sys.stderr)
        return 2
    results = options.results or (RESULTS if options.size is Size.FULL else None)
    is_broken = False
    with ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="frazil-bench-"))
        setting = Setting(
            options.size, options.lake or Path(temporary), rows=options.rows, merges=options.merges
        )
        for name in sorted(names, key=lambda name: name not in _ALONE):
            if setting.size is Size.SMALL and setting.shared is None and name not in _ALONE:
                shared = stack.enter_context(open_bench_lake(setting.folder))
                setting = replace(setting, shared=shared)
            is_broken |= bool(_run(name, setting, results).broken)
    return 1 if is_broken else 0


def _run(name: str, setting: Setting, results: Path | None) -> Report:
    load = os.getloadavg()[0]
    report = BENCHMARKS[name](setting)
    print_report(name, report)
    if results is not None:
        write_report(name, report, results, load_before=load)
    return report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument(
        "--size", type=Size, choices=list(Size), default=Size.FULL, help="small ones claim nothing"
    )
    parser.add_argument("--rows", type=int, help="of the largest table, where that can be chosen")
    parser.add_argument("--merges", type=int, help="where that can be chosen")
    parser.add_argument(
        "--lake", type=Path, help="a folder to keep the first tables in, for the next run"
    )
    parser.add_argument(
        "--results", type=Path, help="where JSON and pictures go; small runs write none without it"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
