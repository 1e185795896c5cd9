"""A source that stands still while its table is maintained -> it goes on where it was, and all else has expired."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from pyspark.sql import SparkSession

from connector.maintenance.expiry import read_reader_positions
from connector.maintenance.tasks import CONVERT, MAINTENANCE_TASK, REWRITE
from connector.sink.factory import Sink
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.kafka.test_sink_maintenance import MAINTAINED, Neighbours, Reader, Story, maintenance_of, rows_of
from tests.runs.in_process import InProcessSink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

BEFORE, AFTER = 8, 24
"""Batches before the source stops, and while it does nothing."""


def _live(inside: InProcessSink, name: str) -> list[int]:
    """The sequence numbers of the snapshots that are left, oldest first."""
    return sorted(int(one.sequenceNumber()) for one in inside.lake.java(name).snapshots())


def _position(sink: Sink, source: str, name: str) -> int:
    """The sequence number of the snapshot that a source has come to."""
    maintainer = maintenance_of(sink).maintainer
    table = maintainer.load(f"default.{name}")
    assert table is not None
    found = read_reader_positions(maintainer.catalog, (maintainer.settings.offsets_table,), table)
    (snapshot_id,) = (one.snapshot_id for one in found if one.name == source)
    return int(table.java.snapshot(snapshot_id).sequenceNumber())


@pytest.mark.thorough
def test_a_source_that_was_stopped_continues_without_a_gap(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """Deletes are converted, files rewritten and snapshots expired for as long as a source is stopped: what is older
    than its position goes, what it has still to read stays, whatever others have read; it publishes the changes since,
    reads nothing again, and then the rest goes, too.
    """
    name = "standstill_v3"
    story, own = Story(name, Random(name), topics, {}), {"debezium.sink.iceberg.format-version": "3"}
    story.events()
    inside = InProcessSink(spark, plain_workspace(name, {**MAINTAINED, **own, "topics": name}))
    along, stopped = (Reader(inside, topics, name, label) for label in ("along", "stopped"))
    sink = inside.sink()
    maintenance_of(sink).maintainer.in_flight_ms = 0
    neighbours = Neighbours(inside, story, name)

    def batches(number: int) -> None:
        for turn in range(number):
            story.events()
            _finish(sink)
            if turn % 6 == 5:
                neighbours.act(lambda: _finish(sink))
                along.publish()

    _finish(sink)
    batches(BEFORE)
    stopped.publish()
    read, position = _count_read(stopped), _position(sink, f"{name}_stopped", name)
    batches(AFTER)
    along.publish()
    _finish(sink)
    left = _live(inside, name)
    assert left[0] == position
    assert len(left) > AFTER
    tasks = Counter(summary.get(MAINTENANCE_TASK) for summary in inside.lake.summaries(name))
    assert tasks[CONVERT] > 1 and tasks[REWRITE] > 1

    stopped.publish()
    assert _count_read(stopped) == read
    assert stopped.rows() == along.rows() == rows_of(inside, name) == story.rows

    story.events()
    _finish(sink)
    assert _live(inside, name)[0] > position
    sink.close()


def _count_read(reader: Reader) -> int:
    """How many events are of rows that were read in full, not of changes."""
    return sum(event["op"] == "r" for event in reader.events())


def _finish(sink: Sink) -> None:
    """Do a batch, and the maintenance that is due then."""
    sink.stream.run(once=True)
    maintenance_of(sink)
