"""Schema changes of a real MariaDB -> columns that are renamed and keep their field ids."""

from __future__ import annotations

import attrs
import pytest

from tests.clients.lake import Lake
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.model import binlog_recordings
from tests.model.recordings import Record

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

TOPIC = binlog_recordings.topic("mariadb", "plain", "renames")
DDL = binlog_recordings.side_topic("mariadb", "plain")
TABLE = TOPIC.replace(".", "_")
OPTIONS = {"topics": TOPIC, "debezium.sink.iceberg.schema-change-topics": DDL}
# The source's name is how its topics begin.
NAMES = (b'"name":"mariadb_plain"', b'"name":"at_once.mariadb_plain"')


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
    """Renamed twice a column is one column with all rows, those of events that still have an earlier name too."""
    early, later = _told()
    topics.replay(early)
    space = make_workspace("renames", OPTIONS)
    first = space.run()
    assert first.code == 0, first.text[-6000:]
    before = _ids(lake(space))
    topics.replay(later, create=False)
    # What comes again has the column's first name; a snapshot's rows would be newer by Kafka's order.
    topics.replay([r for r in early if b'"op":"u"' in (r.value or b"")], create=False)
    again = space.run()
    assert again.code == 0, again.text[-6000:]
    after = _ids(lake(space))
    assert after["finally_is"] == before["was"]
    assert not {"was", "is_now"} & set(after)
    assert _rows(lake(space)) == _truth()


@pytest.mark.thorough
def test_a_table_is_made_with_the_names_of_now(topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake) -> None:
    """Where all is there at once no earlier name becomes a column."""
    records = [attrs.evolve(r, topic=f"at_once.{r.topic}") for part in _told() for r in part]
    values = [r if r.value is None else attrs.evolve(r, value=r.value.replace(*NAMES)) for r in records]
    topics.replay(values)
    options = {name: f"at_once.{topic}" for name, topic in OPTIONS.items()}
    space = make_workspace("renames_at_once", options)
    run = space.run()
    assert run.code == 0, run.text[-6000:]
    table = f"at_once_{TABLE}"
    assert not {"was", "is_now"} & {str(f.name()) for f in lake(space).java(table).schema().columns()}
    assert {row["id"]: row["finally_is"] for row in lake(space).rows(table)} == _truth()


def _truth() -> dict[int, str]:
    rows = binlog_recordings.state("mariadb", "plain", "renames")
    return {int(row["id"]): row["finally_is"] for row in rows}
