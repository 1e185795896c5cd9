"""a source table that was truncated -> an Iceberg table without the rows of before, in whatever partition."""

from __future__ import annotations

import json

import attrs
import pytest
from pyspark.sql import SparkSession

from tests.conftest import MakeWorkspace, OpenLake
from tests.inside import Inside
from tests.model import recordings
from tests.model.recordings import Record
from tests.running import Run
from tests.topics import Topics

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

TOPIC = "emptied.public.trunc_me"


def _is_before(record: Record) -> bool:
    """A row of the time before the truncate."""
    return record.value is not None and json.loads(record.value)["payload"]["op"] in ("r", "c") and record.offset < 2


def _rows(space: object, lake: OpenLake) -> list[tuple[int, str]]:
    return sorted((r["id"], r["v"]) for r in lake(space).rows("emptied_public_trunc_me"))  # type: ignore[arg-type]


def test_a_truncate_empties_the_table(topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake) -> None:
    """Rows of earlier batches and of other partitions go; the row after the truncate stays."""
    records = [attrs.evolve(r, topic=TOPIC) for r in recordings.load("json_schema_envelope", "trunc_me")]
    topics.replay(r for r in records if _is_before(r))
    extra = {"topics": TOPIC, "truncate.enabled": "true", "debezium.sink.iceberg.upsert-keep-deletes": "false"}
    space = make_workspace("truncating", {**extra, "debezium.sink.iceberg.write-mode": "position-delete"})
    _fine(space.run())
    assert _rows(space, lake) == [(1, "x"), (2, "y"), (3, "z")]
    topics.replay((r for r in records if not _is_before(r)), create=False)
    run = _fine(space.run())
    assert _rows(space, lake) == [(1, "after truncate")]
    assert run.total("dead_letters") == 0
    # The whole recording in one batch, read by a sink that starts anew.
    other = make_workspace("truncated", extra)
    _fine(other.run())
    assert _rows(other, lake) == [(1, "after truncate")]
    # Without the setting a truncate is told and changes nothing.
    ignoring = make_workspace("ignoring", {**extra, "truncate.enabled": "false"})
    ignored = _fine(ignoring.run())
    assert _rows(ignoring, lake) == [(1, "after truncate"), (2, "y"), (3, "z")]
    assert "truncates are ignored" in ignored.text and ignored.total("dead_letters") == 0


def test_what_comes_again_after_a_truncate_changes_nothing(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """Rows from before a truncate that the source sends again stay away, and its truncate takes no newer row."""
    name = "emptied_again"
    records = [attrs.evolve(r, topic=name) for r in recordings.load("json_schema_envelope", "trunc_me")]
    extra = {"topics": name, "truncate.enabled": "true", "debezium.sink.iceberg.upsert-keep-deletes": "false"}
    sink = Inside(spark, plain_workspace(name, extra))
    topics.replay(records)
    sink.run()
    late = []
    for part in ([r for r in records if b"after truncate" not in (r.value or b"")], list(filter(_is_before, records))):
        topics.replay(part, create=False)
        late += [report.late for report in sink.run()]
        assert [(r["id"], r["v"]) for r in sink.lake.many(name)] == [(1, "after truncate")]
    # With its truncate each row is before it in the batch; alone the rows are late.
    assert late == [0, 3]


def _fine(run: Run) -> Run:
    assert run.code == 0, run.text[-6000:]
    return run
