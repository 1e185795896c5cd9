"""Changes of key and rows in outputs of tasks -> what Spark finds of each row before is what plain Python finds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from random import Random

import attrs
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from connector.sink.destinations.iceberg.lookups.held_rows import ORDER, PLACE, READ, HeldRows
from connector.sink.destinations.iceberg.lookups.key_changes import HELD_FILE, RowsBefore
from connector.sink.job.shuffle import pack
from connector.sink.model.change_rows import OP_KEY_CHANGE, RECORD_BITS, ChangeBatch, ChangeOrder
from connector.sink.model.plan import TablePlan
from connector.sink.model.task_output import OUTPUT_SCHEMA, OutputKind, TaskOutput, to_batches
from serde.events.images.unavailable_value import PLACEHOLDER
from serde.events.kinds.operations import OP_CREATE
from serde.events.positions.log_positions import NO_VALUE
from tests.harness.tiers import tiered
from tests.model.rows_before import Before, Event, draw_events, follow
from tests.unit.sink_plans import upsert

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

VALUES, NOTHING = ("a", "b"), (None, None)
TABLE = upsert(0, {"id": pa.int64(), "n": pa.int64(), **dict.fromkeys(VALUES, pa.string())}, ("id",), patches=True)


def _to_changes(events: Sequence[Event]) -> ChangeBatch:
    """Return events as a task hands them on."""
    columns = {
        "id": [event.key for event in events],
        "n": [None] * len(events),
        **{
            name: [event.values[place] or PLACEHOLDER if event.is_row else None for event in events]
            for place, name in enumerate(VALUES)
        },
    }
    schema = TABLE.layout.rows
    rows = pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)
    dedup = np.array([NO_VALUE if event.dedup is None else event.dedup for event in events])
    order = ChangeOrder(
        partition=np.array([event.at[0] for event in events]),
        offset=np.array([event.at[1] for event in events]),
        dedup=dedup,
        date=dedup,
        place=np.array([[event.source, *(event.position or (NO_VALUE,) * 3)] for event in events]),
        op=np.array([OP_KEY_CHANGE if event.moved or not event.is_row else OP_CREATE for event in events], np.uint8),
    )
    ended = np.array([event.ended for event in events])
    return ChangeBatch(rows, order, ended, ~ended)


def _to_outputs(
    spark: SparkSession, kind: OutputKind, events: Sequence[Event], size: int, *, suspect: bool = False
) -> DataFrame:
    """Return events as outputs of so many each, in some partitions."""
    parts = [_to_changes(events[start : start + size]) for start in range(0, len(events), size)]
    parts = [attrs.evolve(part, suspect=np.full(len(part), suspect)) for part in parts]
    outputs = [TaskOutput(kind, pack(part), TABLE.index) for part in parts]
    rows = [tuple(row.values()) for batch in to_batches(outputs) for row in batch.to_pylist()]
    return spark.createDataFrame(rows, OUTPUT_SCHEMA).repartition(3)


def _find(spark: SparkSession, table: TablePlan, events: Sequence[Event], size: int) -> dict[tuple[int, int], Before]:
    changes = _to_outputs(spark, OutputKind.OLD_KEY_ROWS, [event for event in events if not event.is_row], size)
    rows = _to_outputs(spark, OutputKind.LAST_ROWS, [event for event in events if event.is_row], size)
    with ExitStack() as until:
        found = RowsBefore(table, VALUES).find(changes, rows, until).collect()
    low = (1 << RECORD_BITS) - 1
    told = {
        (one["_at"] >> RECORD_BITS, one["_at"] & low): Before(
            one["_old_0"], (one["_before_0"], one["_before_1"]), one["_changed"]
        )
        for one in found
    }
    assert len(told) == len(found)
    return told


@pytest.mark.parametrize("keys", tiered([1, 8, 40], [8]))
def test_rows_before_changes_of_key(spark: SparkSession, keys: int) -> None:
    """Chains, swaps and circles, spread over tasks: one row for each change of key, with what Python says of it."""
    events = draw_events(Random(keys), len(VALUES), keys=keys, most=150)
    expected = {at: one if one.values else Before(one.key, NOTHING, one.changed) for at, one in follow(events).items()}
    assert _find(spark, TABLE, events, 7) == expected


def test_a_row_is_held_under_a_key_that_it_got_and_lost(spark: SparkSession) -> None:
    """Of the rows that a table has under the keys of a chain 6 -> 9 -> 1 -> 5 only that of its time is the row: neither
    the next row of a key, nor one before it, nor a snapshot read."""
    moves = [(6, 9, 10), (9, 1, 20), (1, 5, 30)]
    changes = [Event(old, (0, at), is_row=False, dedup=date) for at, (old, _, date) in enumerate(moves)]
    made = [Event(new, (0, at), True, NOTHING, moved=True, dedup=date) for at, (_, new, date) in enumerate(moves)]
    rows = [(9, "a", 0, 9, False), (9, "b", 1, 10, True), (9, "c", 2, 12, False), (1, "d", 3, 30, False)]
    schema = f"key long, file string, pos long, {ORDER} long, {READ} boolean, {PLACE} long"
    held = HeldRows(spark.createDataFrame([(*row, None) for row in rows], schema), ["key"], ("file", "pos"))
    old_keys, last_rows = (
        _to_outputs(spark, kind, events, 2)
        for kind, events in ((OutputKind.OLD_KEY_ROWS, changes), (OutputKind.LAST_ROWS, made))
    )
    with ExitStack() as until:
        found = RowsBefore(TABLE, VALUES).find(old_keys, last_rows, until, held).collect()
    assert {one["_at"]: one[HELD_FILE] for one in found} == {0: None, 1: "c", 2: "c"}


def test_a_row_that_may_be_old_does_not_stand_against_a_later_one_of_the_table(spark: SparkSession) -> None:
    """Under keys that changed at 20 the batch has rows of 5, which may come again: the table's row of 10 counts, if it
    is none of a read, was there before the key changed, and is no earlier than that of the batch; a certain row stays.
    """
    keys = {1: (10, False), 2: (10, True), 3: (20, False), 4: (5, False), 5: (4, False), 6: (10, False)}
    changes = [Event(key, (0, key), is_row=False, dedup=20) for key in keys]
    rows = [Event(key, (0, 50 + key), True, ("old", f"old {key}"), dedup=5) for key in keys]
    schema = f"key long, file string, pos long, {ORDER} long, {READ} boolean, {PLACE} long"
    stored = [(key, "f", key, order, read, None) for key, (order, read) in keys.items()]
    held = HeldRows(spark.createDataFrame(stored[:1], schema), ["key"], ("file", "pos"))
    gone = HeldRows(spark.createDataFrame(stored[1:], schema), ["key"], ("file", "pos"))
    old_keys = _to_outputs(spark, OutputKind.OLD_KEY_ROWS, changes, 2)
    suspects, certain = (
        _to_outputs(spark, OutputKind.LAST_ROWS, some, 2, suspect=suspect)
        for some, suspect in ((rows[:5], True), (rows[5:], False))
    )
    with ExitStack() as until:
        found = RowsBefore(TABLE, VALUES).find(old_keys, suspects.unionAll(certain), until, held, gone).collect()
    assert {one["_old_0"]: one["_before_1"] for one in found} == {1: None, **{key: f"old {key}" for key in range(2, 7)}}


def test_no_more_jobs_where_nothing_is_older_than_the_table(spark: SparkSession) -> None:
    """Whether rows that were taken along may be older than the table's is asked with what else is to follow."""
    held = HeldRows(
        spark.createDataFrame([], f"key long, file string, pos long, {ORDER} long, {READ} boolean, {PLACE} long"),
        ["key"],
        ("file", "pos"),
    )
    moved = [Event(1, (0, 1), is_row=False, dedup=20)]
    rows = [Event(1, (0, 0), is_row=True, values=("a", "b"), dedup=10)]
    outputs = [
        _to_outputs(spark, kind, own, 2)
        for kind, own in ((OutputKind.OLD_KEY_ROWS, moved), (OutputKind.LAST_ROWS, rows))
    ]
    jobs = list[int]()
    for number, stood in enumerate((None, held)):
        group = f"key-changes-{number}"
        spark.sparkContext.setJobGroup(group, "")
        with ExitStack() as until:
            RowsBefore(TABLE, VALUES).find(outputs[0], outputs[1], until, stood)
        jobs.append(len(spark.sparkContext.statusTracker().getJobIdsForGroup(group)))
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert jobs[0] == jobs[1]
