"""Rows of dead letters -> those that nothing newer has superseded, by what their target remembers. On the driver.

Of other topic-partitions the target alone tells: a key moves to another one when a topic gets more of them, and what
came there since is in its row or document, or remembered of its delete. One small Spark job, where there are rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import attrs
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.types.nested_columns import read_batch
from connector.runtime.spark.task_errors import raise_task_errors
from connector.sink.fold.fold import fold
from connector.sink.fold.late_events import split_late_candidates
from connector.sink.job.shuffle import pack, unpack
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.destination import ReplayRows
from connector.sink.model.plan import TablePlan
from connector.sink.model.task_output import OutputKind, TaskOutput, to_batch

DropLateChanges = Callable[[DataFrame, KeyRanges, ExitStack], DataFrame]
"""Outputs of kind LATE_CANDIDATES -> what stands of them, as outputs of kind CHANGES."""


def drop_superseded_rows(
    spark: SparkSession, table: TablePlan, parts: Sequence[ChangeBatch], judge: DropLateChanges
) -> list[ChangeBatch]:
    """Leave out the keys of which the target has what is proven to be newer, or had it deleted. Raises as `judge`."""
    suspects = [attrs.evolve(part, suspect=np.ones(len(part), np.bool_)) for part in parts]
    _, aside = split_late_candidates(fold(suspects, table.layout.keys), table.layout.keys)
    if aside is None:
        return list(parts)
    candidates = to_batch([TaskOutput(OutputKind.LATE_CANDIDATES, pack(aside), table.index)])
    keys_to_find = spark.createDataFrame(pa.Table.from_batches([candidates]))
    ranges = KeyRanges.of(read_batch(aside.rows, table.layout.keys))
    with raise_task_errors(), ExitStack() as until:
        kept = judge(keys_to_find, ranges, until).collect()
    payloads = (pa.py_buffer(bytes(row.payload)) for row in kept if row.kind == OutputKind.CHANGES)
    return [unpack(payload, table.layout.rows) for payload in payloads]


def find_dropped(parts: ReplayRows, remaining: Sequence[ChangeBatch]) -> frozenset[str]:
    """Return the letters of which no row is left."""
    places = {place for part in remaining for place in _places(part)}
    return frozenset(
        one for part, ids in parts for one, place in zip(ids, _places(part), strict=True) if place not in places
    )


def _places(part: ChangeBatch) -> list[tuple[int, int]]:
    return list(zip(part.order.partition.tolist(), part.order.offset.tolist(), strict=True))
