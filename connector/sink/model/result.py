"""Outputs of a batch's tasks -> what its job tells the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import attrs
from pyspark.sql import DataFrame

from connector.iceberg.commit.kafka_offsets import Watermark
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.runtime.topic_partitions import TopicPartition
from connector.sink.model.plan import DeadLetterRef, SchemaChange
from connector.sink.model.truncates import Truncate


@attrs.frozen
class SourceProgress:
    """What a task took in of one topic-partition for one table.

    `marks` tells how far each source came; `after_delete` is the offset behind a delete event that no record of the
    task followed, -1 without.
    """

    table: int
    at: TopicPartition
    marks: Mapping[str, Watermark] = attrs.field(factory=dict)
    after_delete: int = -1


@attrs.frozen(eq=False)
class KeyLookup:
    """Keys whose rows have to go: frames with outputs of kind KEYS among others, key ranges, and tasks for the work."""

    outputs: Sequence[DataFrame]
    ranges: KeyRanges
    tasks: int = 1


class DriverOutput(Protocol):
    """Something that a task tells the driver (`driver_output`)."""

    def add_to(self, result: JobResult) -> None:
        """Add it to what the driver knows of the job."""


@attrs.define(eq=False)
class JobResult:
    """What a job brought back. All mappings are by the index of a table in the plan.

    With `schema_changes` or `tables_lacking_values` (their events leave values out that only the table has) the tables
    were not ready: what was written is discarded and the job runs again.
    `written`: descriptions of what was written, the destination's own. `truncates`: truncate events. `key_ranges`:
    where keys lie whose rows have to be found in the table before the commit; `key_lookups`: these look-ups, whose
    frames live until `resources` is closed. `version_ranges`: where keys and times of new versions lie, in tables
    that keep history. `tables_read`: tables that the job read. `tables_changed`: upserted tables that changes
    of the batch are for, also where no row changes. `tables_waiting`: those with keys that are written once all tasks
    are through. `deletes_wanted`: of how many keys a task has to know the remembered deletes.
    `progress`: how far sources came. `late_ranges`: where keys of late candidates lie. `deleted_key_files`: files
    of the table of deleted keys. `files_found`, `files_unindexed`: data files of the one table that a look-up was
    about, with rows of its keys, and those that it could not look into. `kinds_left`: the kinds of outputs that
    stay on executors, for look-ups (`task_output.OutputKind`).
    """

    written: dict[int, list[Any]] = attrs.field(factory=dict)
    schema_changes: list[SchemaChange] = attrs.field(factory=list)
    dead_letters: list[DeadLetterRef] = attrs.field(factory=list)
    metrics: TaskMetrics = TaskMetrics()
    tables_lacking_values: set[int] = attrs.field(factory=set)
    truncates: dict[int, tuple[Truncate, ...]] = attrs.field(factory=dict)
    key_ranges: dict[int, list[KeyRanges]] = attrs.field(factory=dict)
    version_ranges: dict[int, list[KeyRanges]] = attrs.field(factory=dict)
    key_lookups: dict[int, KeyLookup] = attrs.field(factory=dict)
    tables_read: set[int] = attrs.field(factory=set)
    tables_changed: set[int] = attrs.field(factory=set)
    tables_waiting: set[int] = attrs.field(factory=set)
    deletes_wanted: dict[int, int] = attrs.field(factory=dict)
    resources: ExitStack = attrs.field(factory=ExitStack)
    progress: tuple[SourceProgress, ...] = ()
    late_ranges: dict[int, KeyRanges] = attrs.field(factory=dict)
    deleted_key_files: list[Any] = attrs.field(factory=list)
    files_found: list[str] = attrs.field(factory=list)
    files_unindexed: list[str] = attrs.field(factory=list)
    kinds_left: dict[int, set[str]] = attrs.field(factory=dict)

    @property
    def ready(self) -> bool:
        """Whether the tables were as the events need them."""
        return not self.schema_changes and not self.tables_lacking_values

    def add(self, outputs: Iterable[DriverOutput]) -> JobResult:
        """Add what tasks told, of this job or of a further one for the same batch; return itself."""
        for output in outputs:
            output.add_to(self)
        return self
