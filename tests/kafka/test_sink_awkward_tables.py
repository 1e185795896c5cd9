"""awkward but legitimate tables -> Iceberg tables, through a broker, in two runs of the sink."""

from __future__ import annotations

import attrs
import pytest

from tests.clients.lake import Lake
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.model.awkward_tables import Story, stories, told

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

STORIES = {
    (name, kind): attrs.evolve(story, topic=f"{kind}.{story.topic}")
    for story in stories()
    for kind in ("schemas", *["bare"] * story.bare)
    for name in [story.topic.rpartition(".")[2]]
}


@pytest.fixture(scope="module")
def tables(topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake) -> Lake:
    """All stories, cut in the middle."""
    records = [(story.records(schemas=kind == "schemas"), story) for (_, kind), story in STORIES.items()]
    halves = (
        [one for own, _ in records for one in own[: len(own) // 2]],
        [one for own, _ in records for one in own[len(own) // 2 :]],
    )
    space = make_workspace(
        "awkward",
        {"topics.regex": r"(schemas|bare)\.awk\..*", "debezium.sink.iceberg.upsert-keep-deletes": "false"},
    )
    topics.create(dict.fromkeys((story.topic for _, story in records), 1))
    for half in halves:
        topics.replay(half, create=False)
        run = space.run(timeout_s=400)
        assert run.code == 0, run.text[-6000:]
        assert "dead letter" not in run.text
    return lake(space)


@pytest.mark.parametrize(("name", "kind"), STORIES)
def test_the_rows_are_the_tables(tables: Lake, name: str, kind: str) -> None:
    """Whatever its names, types and keys are; read by Iceberg itself."""
    story = STORIES[name, kind]
    columns = {**story.columns, **story.later}
    assert told(tables.rows(_table(story)), columns) == told(story.rows, columns)


def _table(story: Story) -> str:
    return story.topic.replace(".", "_")
