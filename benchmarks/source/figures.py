"""results of the producer's cases -> figures: medians, ratios, what goes into results.json. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

import attrs


@attrs.frozen
class Timing:
    """Warm rounds of one contender: wall seconds and CPU seconds of its process tree."""

    seconds: tuple[float, ...]
    cpu_s: tuple[float, ...]

    @property
    def wall_s(self) -> float:
        """The median round."""
        return median(self.seconds)

    @property
    def median_cpu_s(self) -> float:
        """The median round's CPU seconds."""
        return median(self.cpu_s)


@attrs.frozen
class Changes:
    """One case: the changes of one snapshot (an update counts twice, as before and after)."""

    name: str
    changes: int = 0
    ours: Timing | None = None
    view: Timing | None = None
    fault: str | None = None


@attrs.frozen
class Publishing:
    """The initial read by the program: all parts, and the warm ones after the first."""

    rows: int
    parts: int
    start_to_first_part_s: float
    warm_envelopes: int
    warm_s: float
    tree_cpu_s: float
    broker_cpu_s: float
    jvm_bytes: int
    worker_bytes: int
    fault: str | None = None

    @property
    def envelopes_per_s(self) -> float | None:
        """From the end of the first part to that of the last."""
        return self.warm_envelopes / self.warm_s if self.warm_s else None

    @property
    def cpu_s_per_million(self) -> float | None:
        """CPU seconds of program and broker per million envelopes, warm."""
        return (self.tree_cpu_s + self.broker_cpu_s) / self.warm_envelopes * 1e6 if self.warm_envelopes else None


@attrs.frozen
class Idle:
    """Polls of a table with a long history that find nothing new, in milliseconds, and REST requests per poll."""

    snapshots: int
    jdbc_ms: tuple[float, ...]
    rest_ms: tuple[float, ...]
    requests: float


@attrs.frozen
class Source:
    """Everything about the producer; peaks are those of the process that computed the changes."""

    changes: tuple[Changes, ...] = ()
    publishing: Publishing | None = None
    idle: Idle | None = None
    jvm_bytes: int = 0
    worker_bytes: int = 0
    faults: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a case failed or gave something wrong."""
        published = self.publishing.fault if self.publishing else None
        return bool(self.faults or published or any(case.fault for case in self.changes))

    def as_json(self) -> dict[str, Any]:
        """Everything, the derived figures too."""
        body = attrs.asdict(self)
        if self.publishing is not None:
            derived = ("envelopes_per_s", "cpu_s_per_million")
            body["publishing"] |= {name: getattr(self.publishing, name) for name in derived}
        return body


def changes_of(name: str, document: Mapping[str, Any]) -> Changes:
    """Read what the measuring process wrote about a case."""
    timings = {
        who: Timing(tuple(document[who]["seconds"]), tuple(document[who]["cpu_s"])) if who in document else None
        for who in ("ours", "view")
    }
    return Changes(name, document.get("changes", 0), timings["ours"], timings["view"], document.get("fault"))


def idle_of(document: Mapping[str, Any]) -> Idle | None:
    """Read what it wrote about idle polls; nothing where they were not wanted."""
    if not document:
        return None
    return Idle(document["snapshots"], tuple(document["jdbc_ms"]), tuple(document["rest_ms"]), document["requests"])
