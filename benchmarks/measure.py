"""processes -> figures: CPU seconds and peak memory of a process tree, sampled while it runs.

CPU seconds of the tree are user and system time of each living process and of its reaped children (`proc(5)`:
utime, stime, cutime, cstime), so work of a finished worker is not lost. Peak memory is the kernel's own high-water
mark (VmHWM), exact whatever the sampling interval.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import attrs
import numpy as np
import psutil

INTERVAL_S = 0.25


@attrs.frozen
class Sample:
    """Cumulative CPU seconds at one moment of the monotonic clock."""

    at_s: float
    tree_s: float
    broker_s: float
    machine_s: float


@attrs.frozen
class Memory:
    """Peak resident bytes over the run: of the largest process of each kind, and of all at one moment.

    The latter is the largest sum that was sampled, in which memory that processes share counts for each of them.
    """

    jvm_bytes: int
    worker_bytes: int
    driver_bytes: int
    tree_bytes: int = 0


@attrs.frozen
class Usage:
    """All samples of one run and its peaks."""

    samples: tuple[Sample, ...]
    memory: Memory

    def cpu_between(self, start_s: float, end_s: float) -> dict[str, float]:
        """CPU seconds spent between two moments by the tree, the broker and the whole machine."""
        at = [sample.at_s for sample in self.samples]
        spent = {}
        for name in ("tree_s", "broker_s", "machine_s"):
            values = [getattr(sample, name) for sample in self.samples]
            low, high = np.interp([start_s, end_s], at, values).tolist()
            spent[name.removesuffix("_s")] = high - low
        return spent


class TreeSampler:
    """Samples the tree under `pid` in a thread of its own between enter and exit."""

    def __init__(self, pid: int, broker_pid: int | None) -> None:
        """Describe what to sample; nothing runs yet."""
        self._root = psutil.Process(pid)
        self._broker = psutil.Process(broker_pid) if broker_pid else None
        self._samples: list[Sample] = []
        self._peaks = {"jvm": 0, "worker": 0, "driver": 0, "tree": 0}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="tree-sampler", daemon=True)

    def __enter__(self) -> TreeSampler:
        """Start."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self._done.set()
        self._thread.join()

    def usage(self) -> Usage:
        """What was seen so far."""
        peaks = self._peaks
        return Usage(tuple(self._samples), Memory(peaks["jvm"], peaks["worker"], peaks["driver"], peaks["tree"]))

    def _loop(self) -> None:
        highest = 0.0
        while True:
            # A process that nobody reaps takes its seconds along when it goes: the sum never falls.
            highest = max(highest, self._tree_seconds())
            broker_s = _cpu_seconds(self._broker) if self._broker else 0.0
            self._samples.append(Sample(time.monotonic(), highest, broker_s, machine_seconds()))
            if self._done.wait(INTERVAL_S):
                return

    def _tree_seconds(self) -> float:
        total, resident = 0.0, 0
        for process in tree_of(self._root):
            try:
                total += _cpu_seconds(process)
                resident += process.memory_info().rss
                kind = "driver" if process.pid == self._root.pid else kind_of(process.name())
                if kind is not None:
                    self._peaks[kind] = max(self._peaks[kind], peak_rss_bytes(process.pid))
            except psutil.Error:
                continue
        self._peaks["tree"] = max(self._peaks["tree"], resident)
        return total


def tree_cpu_seconds(pid: int) -> float:
    """CPU seconds so far of a process and everything below it that lives."""
    return sum(_cpu_seconds(process) for process in tree_of(psutil.Process(pid)))


def tree_of(root: Any) -> list[Any]:
    """`root` and everything below it that lives."""
    try:
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []


def peak_rss_bytes(pid: int) -> int:
    """The kernel's high-water mark of resident memory; the current size where there is no mark; 0 when gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    sizes = dict(line.split(":", 1) for line in status.splitlines() if line.startswith(("VmHWM", "VmRSS")))
    mark = sizes.get("VmHWM", sizes.get("VmRSS", "0 kB"))
    return int(mark.split()[0]) * 1024


def machine_seconds() -> float:
    """Busy CPU seconds of the whole machine since boot."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


def _cpu_seconds(process: Any) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def kind_of(name: str) -> str | None:
    """Which peak a process of this name counts for; None for a shell, or a copy of the JVM just before its exec."""
    if name.startswith("java"):
        return "jvm"
    return "worker" if name.startswith("python") else None
