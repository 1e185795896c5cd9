"""Load, samples, verdicts: the endurance run's own parts, without a broker or a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import orjson
import pytest

from benchmarks.endurance import load as load_module
from benchmarks.endurance.load import Pace, SteadyLoad
from benchmarks.endurance.picture import draw
from benchmarks.endurance.samples import MEASURES, Sample, judge
from benchmarks.endurance.watch import TableWatch
from connector.iceberg.commit.commit_summary import OFFSETS

pytestmark = pytest.mark.unit

NONE = Sample(**{field.name: 0 for field in attrs.fields(Sample)})


class Client:
    """Keeps what is produced."""

    def __init__(self, *_: object) -> None:
        """Begin with nothing."""
        self.sent: list[tuple[bytes, int]] = []

    def __len__(self) -> int:
        """Nothing waits."""
        return 0

    def produce(self, _: str, value: bytes, __: bytes, partition: int) -> None:
        """Take a message."""
        self.sent.append((value, partition))

    def poll(self, _: float) -> None:
        """Do nothing."""


def test_bursts_come_on_top_of_the_rate() -> None:
    """In ten seconds of every five minutes there are so many times as many events."""
    pace = Pace(100, burst=3)
    assert [pace.events_until(at_s) for at_s in (0, 5, 10, 300, 305)] == [0, 1500, 3000, 32_000, 33_500]


def test_the_load_knows_the_rows_that_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key's events are in one partition, each later than the one before, and the last one says what is left of it."""
    client = Client()
    monkeypatch.setattr(load_module, "producer", lambda *_: client)
    monkeypatch.setattr(load_module, "_CHUNK", 40)
    load = SteadyLoad("h:1", "t", Pace(1), keys=7)
    load._produce(100)
    last: dict[int, tuple[int, bool]] = {}
    for value, partition in client.sent:
        event = orjson.loads(value)
        row = event["after"] or event["before"]
        assert row["id"] % 4 == partition
        last[row["id"]] = (event["ts_ns"], event["op"] != "d")
    assert load.sent == len(client.sent) == sum(map(len, load.produced)) == 100
    assert {number: bool(load.alive[number]) for number in last} == {number: on for number, (_, on) in last.items()}
    assert load.stamps.max() == 100
    assert (np.sort(load.stamps) == np.unique(load.stamps)).all()


def test_delays_are_of_what_a_snapshot_made_visible(tmp_path: Path) -> None:
    """An event is as old as it was when a snapshot first had its offset; snapshots without offsets tell nothing."""
    load: Any = SimpleNamespace(produced=([10.0, 11.0, 12.0], [10.5]))
    watch = TableWatch(tmp_path, "a.b", load)
    first = {"snapshot-id": 1, "summary": {OFFSETS: '{"t":{"0":2,"1":0}}'}}
    second = {"snapshot-id": 2, "summary": {OFFSETS: '{"t":{"0":3,"1":1}}'}}
    watch.note(json.dumps({"snapshots": [first, {"snapshot-id": 9, "summary": {}}]}).encode(), 20.0)
    assert (watch.take_delays(), watch.visible) == ([10.0, 9.0], 2)
    watch.note(json.dumps({"snapshots": [first, second]}).encode(), 22.0)
    assert (watch.take_delays(), watch.visible) == ([10.0, 11.5], 4)


@pytest.mark.parametrize(("late", "flat"), [(1000, True), (1240, True), (1300, False)])
def test_what_grows_is_told(late: int, flat: bool) -> None:
    """The last quarter is compared with the second, whatever the first one was, and a little more is no growth."""
    samples = [attrs.evolve(NONE, snapshots=count) for count in [1] * 4 + [1000] * 8 + [late] * 4]
    verdicts = {one.measure.field: one.is_flat for one in judge(samples)}
    assert verdicts.pop("snapshots") == flat
    assert all(verdicts.values())
    with pytest.raises(ValueError, match="too few"):
        judge(samples[:7])


@pytest.mark.parametrize(("late", "flat"), [(380, True), (414, False)])
def test_threads_that_are_left_behind_are_told(late: int, flat: bool) -> None:
    """A process has no reason to have more threads after an hour: what files and batches may do is too much there."""
    samples = [attrs.evolve(NONE, threads=count) for count in [300] * 4 + [363] * 8 + [late] * 4]
    assert {one.measure.field: one.is_flat for one in judge(samples)}["threads"] == flat


def test_every_measure_is_drawn(tmp_path: Path) -> None:
    """The picture has a chart of each measure, all of which a sample has."""
    assert {one.field for one in MEASURES} <= {field.name for field in attrs.fields(Sample)}
    draw([NONE, attrs.evolve(NONE, at_s=60.0, snapshots=3)], tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 10_000
