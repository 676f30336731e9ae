"""What a call costs the machine: seconds, processor time and memory of this process and the JVM.

The JVM is a child of ours and runs Spark's Python workers as children of its own. Servers that we
start for sources are other children and not part of what is measured.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")

# Often enough to see a task's memory, seldom enough to cost a hundredth of a core.
_SAMPLE_SECONDS = 0.1
_JVM = "java"


@dataclass(frozen=True, slots=True)
class Usage:
    """One call: wall time, processor time, and the most memory the tree had in it.

    Pages that several processes map count for each of them. A JVM seldom gives memory back, so
    its part is what the hungriest call so far has left it with. ``driver_bytes`` is the most that
    this process had, ``worker_bytes`` the most that Spark's Python processes had together, and
    ``python_bytes`` the most that both of them had at one moment.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    driver_bytes: int
    worker_bytes: int
    python_bytes: int


def measure_call(call: Callable[[], T]) -> tuple[T, Usage]:
    """Run it once and say what it cost."""
    with _Sampler() as sampler:
        cpu = _cpu_seconds(_tree())
        started = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - started
        cpu = _cpu_seconds(_tree()) - cpu
    return result, Usage(
        seconds=seconds,
        cpu_seconds=cpu,
        peak_bytes=sampler.peak_bytes,
        driver_bytes=sampler.driver_bytes,
        worker_bytes=sampler.worker_bytes,
        python_bytes=sampler.python_bytes,
    )


def cpu_seconds_of(pid: int) -> float:
    """What a process and all below it have used so far."""
    process = psutil.Process(pid)
    return _cpu_seconds([process, *process.children(recursive=True)])


class _Sampler:
    """Samples the memory of the tree until the block is left."""

    def __init__(self) -> None:
        self.peak_bytes = self.driver_bytes = self.worker_bytes = self.python_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory-sampler", daemon=True)

    def __enter__(self) -> _Sampler:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    def _sample(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            self._look()

    def _look(self) -> None:
        driver, *others = _resident_bytes()
        workers = sum(size for name, size in others if name != _JVM)
        total = driver[1] + sum(size for _, size in others)
        self.peak_bytes = max(self.peak_bytes, total)
        self.driver_bytes = max(self.driver_bytes, driver[1])
        self.worker_bytes = max(self.worker_bytes, workers)
        self.python_bytes = max(self.python_bytes, driver[1] + workers)


def _tree() -> list[psutil.Process]:
    this = psutil.Process()
    engines = [child for child in this.children() if _name(child) == _JVM]
    below = [process for engine in engines for process in _below(engine)]
    return [this, *engines, *below]


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def _below(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _resident_bytes() -> Iterator[tuple[str, int]]:
    """Each process with its name, this one first."""
    for process in _tree():
        try:
            yield process.name(), process.memory_info().rss
        except psutil.NoSuchProcess:
            continue


def _cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    """Of every live process, with what its dead children used: none is counted twice."""
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
