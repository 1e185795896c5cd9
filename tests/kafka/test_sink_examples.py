"""Debezium Server Iceberg's example configurations -> runs over recorded events; brokers and warehouse are added."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.tiers import tiered
from tests.model import recordings
from tests.runs.host import Host
from tests.runs.processes import Run
from tests.unit.test_settings_peers import EXAMPLES

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

FLAT, NESTED = "testc.public.customers", "testc.public.nested"


@pytest.fixture(scope="module")
def waiting(topics: Topics) -> dict[str, int]:
    """Records per topic: one table's events flattened, and as envelopes."""
    made = {
        topic: [attrs.evolve(record, topic=topic) for record in recordings.load(variant, "customers")]
        for topic, variant in ((FLAT, "json_unwrap_rewrite"), (NESTED, "json_envelope"))
    }
    topics.replay(record for records in made.values() for record in records)
    return {topic: len(records) for topic, records in made.items()}


@pytest.mark.parametrize("section", tiered(EXAMPLES, ["Debezium Event Flattening", "Without Event Flattening"]))
def test_the_seeds_example_runs_as_it_is(
    section: str, waiting: dict[str, int], make_workspace: MakeWorkspace, host: Host, tmp_path: Path
) -> None:
    """Each example of Debezium Server Iceberg's page takes in every event of a topic, with no line changed."""
    topic = NESTED if section == "Without Event Flattening" else FLAT
    name = f"seed_{list(EXAMPLES).index(section)}"
    local = make_workspace(name, {"topics": topic, "debezium.source.topic.prefix": "testc"}).file({})
    example = tmp_path / "application.properties"
    example.write_text(EXAMPLES[section])
    said = host.call("run", "--once", str(local), str(example))
    run = Run.of(said.code, said.log)
    assert run.code == 0, run.text[-6000:]
    assert (run.total("events"), run.total("dead_letters")) == (waiting[topic], 0), run.text[-3000:]
