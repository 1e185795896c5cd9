"""recorded Debezium events -> broker -> sink -> documents that equal PostgreSQL's rows, in every JSON variant."""

from __future__ import annotations

import pytest

from tests.clients.search import Search
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, Replay
from tests.harness.rounds import THOROUGH
from tests.harness.tiers import tiered
from tests.model import recordings, truth
from tests.runs.processes import Run, Workspace

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(400)]

KEYED = [(v, t) for v in recordings.ALL_VARIANTS for t in recordings.tables(v)]
FEW = recordings.diagonal(recordings.KEYED)
"""In `make test`: each variant, and each table."""
ALL = pytest.mark.parametrize(("variant", "table"), tiered(KEYED, FEW))
Result = tuple[Run, Workspace]


@pytest.fixture(scope="module")
def done(recorded: Replay, make_workspace: MakeWorkspace, search: Search) -> Result:
    """One run over the recorded topics with a key that the tests look at."""
    extra = {
        "debezium.sink.type": "opensearch",
        "connection.url": search.url,
        "topics": ",".join(recorded(KEYED if THOROUGH else FEW)),
        "truncate.enabled": "true",
        "debezium.sink.iceberg.temporal-as-text": ",".join(truth.AS_TEXT),
    }
    space = make_workspace("documents", extra)
    run = space.run()
    assert run.code == 0, run.text[-6000:]
    return run, space


def _index(variant: str, table: str) -> str:
    return recordings.topic(variant, table).lower()


@ALL
def test_a_recording_ends_in_the_recorded_state(done: Result, search: Search, variant: str, table: str) -> None:
    """A replayed recording ends in PostgreSQL's recorded rows, document by document, deleted ones gone."""
    assert truth.faults(variant, table, search.rows(_index(variant, table))) == []


def test_nothing_recorded_is_a_dead_letter(done: Result, topics: Topics) -> None:
    """A real connector's events all become documents."""
    assert done[0].total("dead_letters") == 0
    assert topics.read("documents-dead-letters") == []


def test_a_second_run_changes_nothing(done: Result, search: Search) -> None:
    """Run again with nothing new on the topics, the sink sends nothing."""
    index = _index(*FEW[0])
    before = search.versions(index)
    again = done[1].run()
    assert (again.code, again.total("events")) == (0, 0)
    assert search.versions(index) == before
