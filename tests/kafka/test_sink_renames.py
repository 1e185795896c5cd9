"""Schema changes of a real MariaDB -> columns that are renamed and keep their field ids."""

from __future__ import annotations

import pytest

from tests.conftest import MakeWorkspace, OpenLake
from tests.model import binlog_recordings
from tests.model.recordings import Record
from tests.reading import Lake
from tests.topics import Topics

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

TOPIC = binlog_recordings.topic("mariadb", "plain", "renames")
DDL = binlog_recordings.side_topic("mariadb", "plain")
TABLE = TOPIC.replace(".", "_")


def _told() -> tuple[list[Record], list[Record]]:
    """What was told before the first rename, and from then on: rows and schema changes."""
    records = [r for r in binlog_recordings.load_all("mariadb", "plain") if r.topic in (TOPIC, DDL)]
    later = next(r.offset for r in records if r.topic == DDL and b"RENAME COLUMN was" in (r.value or b""))
    early = [r for r in records if (r.offset < later if r.topic == DDL else b'"was"' in (r.value or b'"was"'))]
    return early, [r for r in records if r not in early]


def _rows(lake: Lake) -> dict[int, str]:
    return {row["id"]: row["finally_is"] for row in lake.rows(TABLE)}


def _ids(lake: Lake) -> dict[str, int]:
    return {str(field.name()): int(field.fieldId()) for field in lake.java(TABLE).schema().columns()}


def test_renamed_columns_keep_their_field_ids(topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake) -> None:
    """Renamed twice a column is one column with all rows, as rows come or all at once; events from before fit it."""
    early, later = _told()
    options = {"topics": TOPIC, "debezium.sink.iceberg.schema-change-topics": DDL}
    topics.replay(early)
    space = make_workspace("renames", options)
    first = space.run()
    assert first.code == 0, first.text[-6000:]
    before = _ids(lake(space))
    topics.replay(later, create=False)
    again = space.run()
    assert again.code == 0, again.text[-6000:]
    after, truth = _ids(lake(space)), {row["id"]: row["finally_is"] for row in _truth()}
    assert after["finally_is"] == before["was"]
    assert not {"was", "is_now"} & set(after)
    assert _rows(lake(space)) == {int(key): value for key, value in truth.items()}
    # What comes again has the column's first name; a snapshot's rows would be newer by Kafka's order.
    topics.replay([r for r in early if b'"op":"u"' in (r.value or b"")], create=False)
    late = space.run()
    assert late.code == 0, late.text[-6000:]
    assert _ids(lake(space)) == after
    fresh = make_workspace("renames_at_once", options)
    whole = fresh.run()
    assert whole.code == 0, whole.text[-6000:]
    assert not {"was", "is_now"} & set(_ids(lake(fresh)))
    assert _rows(lake(fresh)) == _rows(lake(space)) == {int(key): value for key, value in truth.items()}


def _truth() -> list[dict[str, str]]:
    return binlog_recordings.state("mariadb", "plain", "renames")
