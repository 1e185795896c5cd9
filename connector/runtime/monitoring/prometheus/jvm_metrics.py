"""MXBeans of Spark's JVM, read on a schedule -> the series of the JMX exporter, by older and newer names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from connector.runtime.monitoring.prometheus.series import MetricSample, Series

_AREA, _GC = ("area",), ("gc",)
_USAGES = {"used": "Used", "committed": "Committed", "max": "Max", "init": "Init"}
MEMORY: Mapping[str, tuple[Series, Series]] = {
    kind: (
        Series(f"jvm_memory_bytes_{kind}", f"Memory of Spark's JVM: {kind} (bytes).", _AREA),
        Series(f"jvm_memory_{kind}_bytes", f"Memory of Spark's JVM: {kind} (bytes).", _AREA),
    )
    for kind in _USAGES
}
THREADS: Mapping[str, Series] = {
    name: Series(f"jvm_threads_{name}", f"Threads of Spark's JVM: {name}.")
    for name in ("current", "daemon", "peak", "started_total")
}
GC_COUNT = Series("jvm_gc_collection_seconds_count", "Garbage collections.", _GC)
GC_SECONDS = Series("jvm_gc_collection_seconds_sum", "Seconds of them.", _GC)
CLASSES = (
    Series("jvm_classes_loaded", "Classes that are loaded."),
    Series("jvm_classes_currently_loaded", "Classes that are loaded."),
)
UPTIME = Series("icebridge_jvm_uptime_seconds", "How long Spark's JVM has run.", (), "gauge")
ALL = (
    *(one for pair in MEMORY.values() for one in pair),
    *THREADS.values(),
    GC_COUNT,
    GC_SECONDS,
    *CLASSES,
    UPTIME,
)


@attrs.frozen
class JvmState:
    """What was read at one time: bytes by area and kind, threads, collectors, classes, uptime."""

    memory: Mapping[str, Mapping[str, int]]
    threads: Mapping[str, int]
    collectors: Mapping[str, tuple[int, int]]
    classes: int
    uptime_ms: int


def read_jvm(jvm: Any) -> JvmState:
    """Ask a JVM over Py4J, about 30 calls (some milliseconds); raises what Py4J does where it is gone."""
    beans = jvm.java.lang.management.ManagementFactory
    memory, threads = beans.getMemoryMXBean(), beans.getThreadMXBean()
    areas = {"heap": memory.getHeapMemoryUsage(), "nonheap": memory.getNonHeapMemoryUsage()}
    return JvmState(
        {
            area: {kind: int(getattr(usage, f"get{word}")()) for kind, word in _USAGES.items()}
            for area, usage in areas.items()
        },
        {
            "current": int(threads.getThreadCount()),
            "daemon": int(threads.getDaemonThreadCount()),
            "peak": int(threads.getPeakThreadCount()),
            "started_total": int(threads.getTotalStartedThreadCount()),
        },
        {
            str(one.getName()): (int(one.getCollectionCount()), int(one.getCollectionTime()))
            for one in beans.getGarbageCollectorMXBeans()
        },
        int(beans.getClassLoadingMXBean().getLoadedClassCount()),
        int(beans.getRuntimeMXBean().getUptime()),
    )


class JvmMetrics:
    """A `MetricSource` of what was read last; a scrape never waits for a busy JVM."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self.state: JvmState | None = None

    def samples(self) -> Iterator[MetricSample]:
        """Return the values that were read last, none before the first time."""
        state = self.state
        if state is None:
            return
        for area, usage in state.memory.items():
            for kind, value in usage.items():
                for series in MEMORY[kind]:
                    yield series.at(value, area)
        for name, value in state.threads.items():
            yield THREADS[name].at(value)
        for collector, (count, time_ms) in state.collectors.items():
            yield GC_COUNT.at(count, collector)
            yield GC_SECONDS.at(time_ms / 1000, collector)
        for series in CLASSES:
            yield series.at(state.classes)
        yield UPTIME.at(state.uptime_ms / 1000)
