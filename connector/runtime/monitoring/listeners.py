"""What a connector did -> the listeners that show, log or count it: one report per batch or step, handed over whole.

Reports are plain values, no engine's. A runner lists the listeners of its run; another is a class and an entry there.
They are called on the driver, in order, after the commit: one that takes long delays what comes next, and one that
raises ends the run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, Protocol

import attrs

from connector.runtime.monitoring.metrics import TaskMetrics
from connector.runtime.topic_partitions import nest_by_topic

StepKind = Literal["part read", "chunk read", "snapshot published", "snapshot skipped"]


@attrs.frozen
class BatchReport:
    """A batch of the sink that is committed.

    `end` has the offset after the last record of each topic-partition, `transaction` the last one that is complete.
    `tables` counts what was written, for each table that changed. `dead_letters` may be more than `metrics.dead`: an
    earlier try of the batch may have written some; `stages` counts them by the stage that failed. `drift` counts, per
    table and run, the fields in which events and table differ. `newest_ms` is the time of each table's newest event, by
    its source's clock. `reasons` tells of some dead letters record, stage and reason. `schema_changes` counts tables
    "created" and "altered" since the run began. `topics` tells of tables which topics their events are from, as far as
    topics have tables.
    """

    batch: int
    seconds: float
    end: Mapping[tuple[str, int], int]
    transaction: str = ""
    metrics: TaskMetrics = attrs.field(factory=TaskMetrics)
    tables: Mapping[str, Mapping[str, int]] = attrs.field(factory=dict)
    dead_letters: int = 0
    drift: Mapping[str, int] = attrs.field(factory=dict)
    stages: Mapping[str, int] = attrs.field(factory=dict)
    newest_ms: Mapping[str, int] = attrs.field(factory=dict)
    commit_seconds: float = 0.0
    schema_changes: Mapping[str, int] = attrs.field(factory=dict)
    reasons: tuple[tuple[str, str, str], ...] = ()
    topics: Mapping[str, Collection[str]] = attrs.field(factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """What was written, summed over the tables."""
        result: dict[str, int] = {}
        for counts in self.tables.values():
            for what, count in counts.items():
                result[what] = result.get(what, 0) + count
        return result

    @property
    def offsets(self) -> dict[str, dict[str, int]]:
        """`end` as Kafka's tools write offsets: by topic, then by partition (as text)."""
        return nest_by_topic(self.end)


@attrs.frozen
class StepReport:
    """One step of a captured table.

    `kind` is what happened for which snapshot, in how many seconds; `operation` is the one in the snapshot's summary.
    Of an initial snapshot this is part `part` of `parts`, of one on demand chunk `part` of `parts`. `operations` counts
    the changes by operation, where that is known; `committed_ms` is when the snapshot was committed.
    """

    table: str
    kind: StepKind
    snapshot_id: int
    seconds: float
    operation: str = ""
    part: int = 0
    parts: int = 0
    operations: Mapping[str, int] = attrs.field(factory=dict)
    committed_ms: int | None = None


SnapshotAggregate = Literal["Initial Snapshot", "Incremental Snapshot"]
SnapshotStage = Literal[
    "STARTED", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "COMPLETED", "ABORTED", "SKIPPED", "PAUSED", "RESUMED"
]
ScanStatus = Literal[
    "", "SUCCEEDED", "EMPTY", "NO_PRIMARY_KEY", "SKIPPED", "SQL_EXCEPTION", "STOPPED", "UNKNOWN_SCHEMA"
]


@attrs.frozen
class SnapshotReport:
    """How a snapshot goes, in Debezium's words: which one (`id` is that of its signal), of which tables.

    `table` is the current one, `rows` how many rows of its files are read so far, `status` how its scan ended. `chunk`
    of `chunks` are published.
    """

    aggregate: SnapshotAggregate
    stage: SnapshotStage
    id: str = ""
    tables: tuple[str, ...] = ()
    table: str = ""
    rows: int = 0
    status: ScanStatus = ""
    chunk: int = 0
    chunks: int = 0


TaskResult = Literal["done", "failed", "lost"]


@attrs.frozen
class MaintenanceReport:
    """One task of maintenance of a table: what became of it in how many seconds, and what it counted.

    "lost": another writer was faster each time.
    """

    table: str
    task: str
    result: TaskResult
    seconds: float
    counts: Mapping[str, int] = attrs.field(factory=dict)


class MaintenanceListener(Protocol):
    """Hears of the maintenance of tables; called by the thread that does it, beside the batches."""

    def on_task(self, report: MaintenanceReport) -> None:
        """Take note of a task that is over."""

    def on_table(self, table: str, figures: Mapping[str, int]) -> None:
        """Take note of a table as its newest snapshot tells it (`own_series.TABLE_FIGURES`); no figures: it is gone."""


class SnapshotListener(Protocol):
    """Hears how a source's snapshots go, initial ones and those that signals asked for."""

    def on_snapshot(self, report: SnapshotReport) -> None:
        """Take note of a stage that is over; what it tells is stored."""


class SinkListener(Protocol):
    """Hears of each batch of a sink."""

    def on_batch(self, report: BatchReport) -> None:
        """Take note of a batch whose tables are committed."""


class SourceListener(Protocol):
    """Hears of each step of a source."""

    def on_step(self, report: StepReport) -> None:
        """Take note of a step whose changes are acknowledged and whose offset is stored."""
