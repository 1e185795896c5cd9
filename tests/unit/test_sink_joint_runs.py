"""Small runs of a topic: which are read at once, and what happens where that fails."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest

from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.kafka.consumer.records.unreadable_records import UnreadableBatch
from connector.sink.convert import decoder, joint_runs
from connector.sink.convert.joint_runs import gather_small, slice_keys
from connector.sink.convert.record_keys import RecordKeys
from tests.unit.sink_plans import plan, rows, run, upsert

COLUMNS = {"id": pa.int64(), "v": pa.string()}


def _run(topic: str, partition: int, size_bytes: int = 10, connector: str | None = None) -> ConsumerRecords:
    value = pa.array([b"x" * size_bytes], pa.binary())
    return ConsumerRecords(topic, partition, np.array([7]), value.slice(0, 1), value, connector=connector)


def _gathered(*runs: ConsumerRecords) -> list[list[Any]]:
    return [[one.at for one in group] for group in gather_small(runs)]


def test_small_runs_of_a_topic_go_together() -> None:
    """Runs of one topic and connector are gathered in their order; another topic, connector or large run ends that."""
    large = _run("t", 3, joint_runs.SMALL_BYTES)
    runs = [_run("t", 0), _run("t", 1), large, _run("t", 4), _run("u", 0), _run("u", 1, connector="mysql")]
    groups = [[("t", 0), ("t", 1)], [("t", 3)], [("t", 4)], [("u", 0)], [("u", 1)]]
    assert _gathered(*runs) == groups


def test_no_more_is_gathered_than_is_read_at_once() -> None:
    """Gathered runs have a bounded size together."""
    each = joint_runs.SMALL_BYTES // 2 - 10
    sizes = [len(group) for group in _gathered(*(_run("t", number, each) for number in range(9)))]
    assert sizes == [4, 4, 1]


def test_a_record_batch_that_cannot_be_read_comes_alone() -> None:
    """It stays where it came, between the runs around it."""
    unreadable = ConsumerRecords.of_unreadable("t", 1, UnreadableBatch(3, 4, "torn"))
    assert _gathered(_run("t", 0), unreadable, _run("t", 2)) == [[("t", 0)], [("t", 1)], [("t", 2)]]


def test_gathered_runs_do_not_keep_what_was_fetched() -> None:
    """Small pieces of a large fetch are copied."""
    whole = pa.array([b"x" * 100] * 10_000, pa.binary())
    piece = ConsumerRecords("t", 0, np.array([7]), whole.slice(5, 1), whole.slice(5, 1))
    ((copy,),) = gather_small([piece])
    assert (copy.value.get_total_buffer_size(), copy.value.to_pylist()) == (pytest.approx(100, abs=200), [b"x" * 100])


def test_runs_that_cannot_be_read_at_once_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that nobody foresaw in reading runs together costs time, and no record."""

    def fail(*_: Any) -> None:
        raise ValueError("unforeseen")

    monkeypatch.setattr(decoder, "_decode_jointly", fail)
    made = plan(upsert(0, COLUMNS, ("id",)), ranks={("t", 0): 0, ("t", 1): 1})
    one = run({"id": 1, "v": "a"}, keys=[{"id": 1}])
    other = attrs.evolve(run({"id": 2, "v": "b"}, keys=[{"id": 2}]), partition=1)
    assert [rows(each) for each in decoder.decode_runs([one, other], made)] == [
        [{"id": 1, "v": "a"}],
        [{"id": 2, "v": "b"}],
    ]


def test_a_runs_keys_have_the_fields_that_only_their_schema_tells() -> None:
    """A key field that is null in all of a run's keys is still one where the run's own schema has it."""
    columns = {"id": pa.array([1, 2]), "part": pa.array([None, None], pa.int64())}
    keys = RecordKeys(columns, np.ones(2, np.bool_), (), {"part": np.array([False, True])})
    fields = [slice_keys(keys, at, at + 1).type_of(np.array([0])).names for at in range(2)]
    assert fields == [["id"], ["id", "part"]]
