"""Awkward but legitimate tables, in every cut into batches -> their rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.harness.tiers import tiered
from tests.model.awkward_tables import Story, null_in_key, stories, told
from tests.unit.local_sink import LocalSink, local_sink

STORIES = {story.topic.rpartition(".")[2]: story for story in stories()}
HARD = "debezium.sink.iceberg.upsert-keep-deletes=false"


def _take(sink: LocalSink, story: Story, step: int, *, schemas: bool) -> Sequence[str]:
    records = story.records(schemas=schemas)
    for start in range(0, len(records), step):
        sink.process(*(((one.topic, 0), one.key, one.value) for one in records[start : start + step]))
    return [letter.reason for letter in sink.letters]


@pytest.mark.parametrize("schemas", [True, False], ids=["schemas", "bare"])
@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("step", tiered((1, 3, 1000), kept=(3,)))
def test_the_rows_are_the_tables(tmp_path: Path, name: str, schemas: bool, step: int) -> None:
    """Whatever its names, types and keys are, and however its events are cut into batches."""
    story = STORIES[name]
    if not schemas and not story.bare:
        pytest.skip("JSON without schema cannot tell its values")
    sink = local_sink(tmp_path, ["topics.regex=awk\\..*", HARD])
    assert _take(sink, story, step, schemas=schemas) == []
    (rows,) = [sink.rows(table) for table in sink.destination.rows] or [[]]
    columns = {**story.columns, **story.later}
    assert told(rows, columns) == told(story.rows, columns)


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize("schemas", [True, False], ids=["schemas", "bare"])
def test_a_null_in_a_key_is_a_dead_letter_that_names_its_field(tmp_path: Path, schemas: bool, step: int) -> None:
    """The rows beside them are there: Iceberg's identifier fields are never null."""
    sink = local_sink(tmp_path, ["topics.regex=awk\\..*", HARD])
    reasons = _take(sink, null_in_key(), step, schemas=schemas)
    assert len(reasons) == 4 and all(" b" in one for one in reasons)
    (rows,) = [sink.rows(table) for table in sink.destination.rows]
    assert [(row["a"], row["b"], row["v"]) for row in rows] == [(2, "b", "z"), (1, "b", "x")]
