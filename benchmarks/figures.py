"""log lines + samples -> figures: the batches of a run, the first one apart from the warm ones. Pure."""

from __future__ import annotations

from typing import Any

import attrs

from benchmarks.contenders import Finished, Line
from benchmarks.plan import Case


@attrs.frozen
class Batch:
    """One committed batch: `seconds` as the contender says it, `wall_s` since the commit before (or the start)."""

    events: int
    seconds: float
    wall_s: float
    committed_s: float


@attrs.frozen
class Warm:
    """The batches after the first: events, wall seconds and CPU seconds, by the clock of the benchmark."""

    batches: int
    events: int
    wall_s: float
    tree_cpu_s: float
    broker_cpu_s: float
    machine_cpu_s: float

    @property
    def events_per_s(self) -> float:
        """Events per second from the first commit to the last."""
        return self.events / self.wall_s

    @property
    def seconds_per_batch(self) -> float:
        """Mean wall seconds between commits."""
        return self.wall_s / self.batches

    @property
    def cpu_s_per_million(self) -> float:
        """CPU seconds of the contender and of the broker that served it, per million events."""
        return (self.tree_cpu_s + self.broker_cpu_s) / self.events * 1e6


@attrs.frozen
class Run:
    """All figures of one case."""

    case: Case
    batches: tuple[Batch, ...]
    warm: Warm | None
    start_to_first_commit_s: float | None
    total_s: float
    total_cpu_s: float
    jvm_bytes: int
    worker_bytes: int
    driver_bytes: int
    offsets: dict[str, int] | None
    files: dict[str, int] = attrs.field(factory=dict)
    correct: bool | None = None
    fault: str | None = None
    tree_bytes: int = 0

    @property
    def events(self) -> int:
        """Events committed."""
        return sum(batch.events for batch in self.batches)

    def as_json(self) -> dict[str, Any]:
        """Everything, the derived figures too."""
        body = attrs.asdict(self)
        if self.warm is not None:
            derived = ("events_per_s", "seconds_per_batch", "cpu_s_per_million")
            body["warm"] |= {name: getattr(self.warm, name) for name in derived}
        return body


def run_of(case: Case, finished: Finished) -> Run:
    """The figures of a finished process."""
    batches = batches_of(finished.lines, finished.started_s)
    samples, memory = finished.usage.samples, finished.usage.memory
    fault = None
    if finished.exit_code != 0 or not batches:
        fault = f"exit code {finished.exit_code}, {len(batches)} batches: {finished.tail}"
    return Run(
        case=case,
        batches=batches,
        warm=warm_of(batches, finished),
        start_to_first_commit_s=batches[0].wall_s if batches else None,
        total_s=samples[-1].at_s - finished.started_s,
        total_cpu_s=samples[-1].tree_s,
        jvm_bytes=memory.jvm_bytes,
        worker_bytes=memory.worker_bytes,
        driver_bytes=memory.driver_bytes,
        offsets=offsets_of(finished.lines),
        fault=fault,
        tree_bytes=memory.tree_bytes,
    )


def batches_of(lines: tuple[Line, ...], started_s: float) -> tuple[Batch, ...]:
    """The batches that committed events; the home-made contenders tell their events in lines of their own."""
    counts = {line.fields["batch"]: line.fields["events"] for line in lines if line.fields["event"] == "batch read"}
    batches, before = [], started_s
    for line in lines:
        if line.fields["event"] != "batch committed":
            continue
        events = line.fields.get("events", counts.get(line.fields["batch"], 0))
        if events:
            batches.append(Batch(events, float(line.fields["seconds"]), line.at_s - before, line.at_s))
            before = line.at_s
    return tuple(batches)


def warm_of(batches: tuple[Batch, ...], finished: Finished) -> Warm | None:
    """The sum of the batches after the first; None when there is none."""
    if len(batches) < 2:
        return None
    start_s, end_s = batches[0].committed_s, batches[-1].committed_s
    cpu = finished.usage.cpu_between(start_s, end_s)
    return Warm(
        batches=len(batches) - 1,
        events=sum(batch.events for batch in batches[1:]),
        wall_s=end_s - start_s,
        tree_cpu_s=cpu["tree"],
        broker_cpu_s=cpu["broker"],
        machine_cpu_s=cpu["machine"],
    )


def offsets_of(lines: tuple[Line, ...]) -> dict[str, int] | None:
    """The end offsets that a home-made contender reached; None when it does not say."""
    offsets = [line.fields["offsets"] for line in lines if line.fields["event"] == "batch read"]
    return dict(offsets[-1]) if offsets else None
