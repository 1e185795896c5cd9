"""Outputs of a batch's tasks -> what its job tells the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TypeVar

import attrs
from pyspark.sql import DataFrame, SparkSession

from connector.iceberg.commit.kafka_offsets import Watermark
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.runtime.topic_partitions import TopicPartition
from connector.sink.model import task_output
from connector.sink.model.plan import DeadLetterRef, SchemaChange
from connector.sink.model.task_output import TaskOutput
from connector.sink.model.truncates import Truncate

T = TypeVar("T")


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

    parcelled: Sequence[DataFrame]
    ranges: KeyRanges
    tasks: int = 1

    @staticmethod
    def of(spark: SparkSession, asked: Sequence[TaskOutput]) -> KeyLookup:
        """Return the look-up of a few keys that the driver has."""
        ranges = KeyRanges.joined(
            task_output.unpack_value(parcel.payload) for parcel in asked if parcel.kind == task_output.KEY_RANGES
        )
        keys = [(p.kind, p.table, p.bucket, p.payload) for p in asked if p.kind == task_output.KEYS]
        return KeyLookup([spark.createDataFrame(keys, task_output.OUTPUT_SCHEMA)], ranges)


@attrs.frozen(eq=False)
class JobResult:
    """What a job brought back. All mappings are by the index of a table in the plan.

    With `needs` (schema changes) or `open` (tables whose events leave values out that only the table has) the tables
    were not ready: what was written is discarded and the job runs again.
    `files`: descriptions of what was written. `truncates`: truncate events. `ranges`: where keys lie whose rows have to
    be found in the table before the commit; `asked`: these look-ups, whose frames live until `kept` is closed.
    `spans`: where keys and times of new versions lie, in tables that keep history. `held`: tables that the job read.
    `seen`: how far sources came. `suspects`: where keys of late candidates lie. `deleted`: files of the deleted keys.
    """

    files: dict[int, list[bytes]]
    needs: list[SchemaChange]
    letters: list[DeadLetterRef]
    metrics: TaskMetrics
    open: frozenset[int] = frozenset()
    truncates: Mapping[int, tuple[Truncate, ...]] = attrs.field(factory=dict)
    ranges: dict[int, list[KeyRanges]] = attrs.field(factory=dict)
    spans: dict[int, list[KeyRanges]] = attrs.field(factory=dict)
    asked: dict[int, KeyLookup] = attrs.field(factory=dict)
    held: set[int] = attrs.field(factory=set)
    kept: ExitStack = attrs.field(factory=ExitStack)
    seen: tuple[SourceProgress, ...] = ()
    suspects: Mapping[int, KeyRanges] = attrs.field(factory=dict)
    deleted: tuple[bytes, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether the tables were as the events need them."""
        return not self.needs and not self.open

    def merge(self, other: JobResult) -> JobResult:
        """Add what a further job for the same batch brought back."""
        return attrs.evolve(
            self,
            files=_merge_lists(self.files, other.files),
            ranges=_merge_lists(self.ranges, other.ranges),
            spans=_merge_lists(self.spans, other.spans),
            metrics=self.metrics + other.metrics,
            open=self.open | other.open,
            deleted=(*self.deleted, *other.deleted),
        )


def _merge_lists(one: Mapping[int, list[T]], other: Mapping[int, list[T]]) -> dict[int, list[T]]:
    return {index: [*one.get(index, []), *other.get(index, [])] for index in {**one, **other}}
