"""What is measured every few seconds, and whether it stays flat."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import attrs


@attrs.frozen
class Sample:
    """One look; times are seconds, `at_s` since the start of the load. What happened is of the time since the last."""

    at_s: float
    snapshots: int
    metadata_bytes: int
    metadata_files: int
    data_files: int
    delete_files: int
    equality_deletes: int
    position_deletes: int
    live_bytes: int
    stored_bytes: int
    planning_s: float
    commits: int
    commit_s: float
    fresh_p50_s: float
    fresh_p95_s: float
    jvm_bytes: int
    python_bytes: int
    handles: int
    threads: int
    cpu_share: float


GROWTH, LEAK = 1.25, 1.05
"""How many times the median of its second quarter that of the last one may be: of what goes up and down with files and
batches, and of what a process has no reason to have more of."""


@attrs.frozen
class Measure:
    """A line of the picture: `slack` is how much more is no growth, whatever the ratio."""

    field: str
    title: str
    slack: float
    scale: float = 1.0
    growth: float = GROWTH


MEASURES = (
    Measure("snapshots", "snapshots", 50),
    Measure("metadata_bytes", "metadata file, kB", 50, 1e-3),
    Measure("metadata_files", "files in the metadata folder", 100),
    Measure("data_files", "data files", 50),
    Measure("delete_files", "delete files", 50),
    Measure("equality_deletes", "equality deletes", 20_000),
    Measure("live_bytes", "bytes of live files, MB", 10, 1e-6),
    Measure("stored_bytes", "bytes of the table on disk, MB", 20, 1e-6),
    Measure("commit_s", "seconds of a commit", 0.1),
    Measure("planning_s", "CPU seconds to list all live files (PyIceberg)", 0.1),
    Measure("fresh_p50_s", "produced to visible, p50, s", 0.5),
    Measure("fresh_p95_s", "produced to visible, p95, s", 1.0),
    Measure("jvm_bytes", "resident memory of the JVM, MB", 50, 1e-6),
    Measure("python_bytes", "resident memory of Python, MB", 50, 1e-6),
    Measure("handles", "open files and sockets", 20, growth=LEAK),
    Measure("threads", "threads", 20, growth=LEAK),
    Measure("cpu_share", "CPU seconds per second", 0.2),
)


@attrs.frozen
class Verdict:
    """A measure in the second quarter and in the last one."""

    measure: Measure
    early: float
    late: float

    @property
    def is_flat(self) -> bool:
        """Whether it has not grown."""
        return self.late <= max(self.early * self.measure.growth, self.early + self.measure.slack)


def judge(samples: Sequence[Sample]) -> list[Verdict]:
    """Compare quarters of a run, in the measures' own units. ValueError for fewer than eight samples."""
    if len(samples) < 8:
        raise ValueError(f"{len(samples)} samples are too few to tell")
    quarter = len(samples) // 4
    return [
        Verdict(one, _median(samples[quarter : 2 * quarter], one), _median(samples[-quarter:], one)) for one in MEASURES
    ]


def _median(samples: Sequence[Sample], measure: Measure) -> float:
    return float(median(getattr(sample, measure.field) for sample in samples)) * measure.scale
