"""Outputs of map tasks -> slots of the shuffle -> reduce tasks."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest

from connector.sink.job.shuffle_slots import MAX_DEPTH, ShuffleSlots
from connector.sink.model.task_output import OutputKind, TaskOutput
from tests.unit.sink_plans import DATED, plan, upsert


def _outputs(tables: int, buckets: int) -> list[TaskOutput]:
    """Some of each bucket, as map tasks hand them on in turns."""
    return [
        TaskOutput(OutputKind.CHANGES, b"", index, bucket)
        for _ in range(3)
        for bucket in range(buckets)
        for index in range(tables)
    ]


def _slots(tables: int, buckets: int, reducers: int) -> ShuffleSlots:
    every = (upsert(index, DATED, ("id",), buckets=buckets) for index in range(tables))
    return ShuffleSlots.of(plan(*every, reducers=reducers))


@pytest.mark.parametrize(
    ("tables", "buckets", "reducers"), [(1, 1, 1), (1, 2, 2), (1, 7, 2), (1, 100, 3), (200, 1, 2), (3, 40, 2)]
)
def test_buckets_come_whole_and_in_a_row(tables: int, buckets: int, reducers: int) -> None:
    """A bucket's outputs are in one slot, and a task gets them in a row, however many tables and buckets there are."""
    slots = _slots(tables, buckets, reducers)
    assert slots.depth <= MAX_DEPTH
    keyed = sorted(map(slots.key, _outputs(tables, buckets)), key=lambda one: one[0])
    assert {slot for slot, _ in keyed} <= set(range(slots.count))
    row = [(one.table, one.bucket) for one in slots.sort(keyed)]
    assert len(row) == 3 * tables * buckets
    assert len(list(groupby(row))) == tables * buckets


@pytest.mark.parametrize(("tables", "buckets"), [(1, 8), (64, 1)])
def test_reduce_tasks_get_as_much_as_each_other(tables: int, buckets: int) -> None:
    """Neighbouring slots, which are one task's, hold as many buckets as those of any other task."""
    slots = _slots(tables, buckets, 4)
    counts = np.bincount([slots.key(one)[0] // slots.depth for one in _outputs(tables, buckets)], minlength=4)
    assert len(set(counts.tolist())) == 1


def test_what_is_for_the_driver_has_a_slot_too() -> None:
    """Outputs of no table pass through the shuffle."""
    slots = ShuffleSlots(3, 2)
    assert 0 <= slots.key(TaskOutput(OutputKind.DRIVER, b""))[0] < slots.count
