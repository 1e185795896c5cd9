"""Tables in a Nessie catalog, by its Iceberg REST interface: sink, source, other writers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.interop.nessie import WAREHOUSE, Nessie
from tests.runs.processes import Run, Sink, Workspace
from tests.runs.stored_tables import load_change_and_publish, make_events, sink_properties
from tests.servers.store import Store

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]
KEYS = 40


@pytest.fixture(scope="module")
def nessie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nessie]:
    """One Nessie over an S3 server."""
    home: Path = tmp_path_factory.mktemp("nessie")
    with Store(home) as store, Nessie(home, store, store.make_bucket("lake")) as running:
        yield running


def _space(make: MakeWorkspace, nessie: Nessie, name: str, extra: Mapping[str, str]) -> Workspace:
    given = {"topics": f"{name}.t", **extra, **sink_properties(nessie.properties, WAREHOUSE)}
    return make(name, given)


def _open(nessie: Nessie, table: str) -> Any:
    return RestCatalog("nessie", **{**nessie.properties, "warehouse": WAREHOUSE}).load_table(("default", table))


def test_a_source_stops_where_nessie_shows_the_newest_snapshot_only(
    nessie: Nessie, topics: Topics, plain_workspace: MakeWorkspace
) -> None:
    """The sink creates and replaces rows, the source reads them once; then it says that it cannot follow."""
    with pytest.raises(AssertionError, match="changes cannot continue from snapshot"):
        load_change_and_publish(topics, plain_workspace, "nessie", nessie.properties, WAREHOUSE)


_HIDDEN = "does not have the newest commit of connector"


def test_a_sink_stops_where_another_writer_hides_its_commit(
    nessie: Nessie, topics: Topics, plain_workspace: MakeWorkspace
) -> None:
    """Another writer's snapshot is the only one, as after a rollback; told to go on, the sink appends no row twice."""
    space = _space(plain_workspace, nessie, "again", {"debezium.sink.iceberg.upsert": "false"})
    topics.replay(make_events("again.t", dict.fromkeys(range(KEYS), "first"), 0))
    _fine(space.start({}, "--once"))
    table = _open(nessie, "again_t")
    table.append(pa.Table.from_pylist([{"id": 1000, "name": "theirs"}], schema=table.schema().as_arrow()))
    assert len(_open(nessie, "again_t").metadata.snapshots) == 1
    topics.replay(make_events("again.t", {KEYS: "second"}, KEYS), create=False)
    stopped = space.start({}, "--once").wait(240)
    assert stopped.code and _HIDDEN in stopped.text, stopped.text[-6000:]
    _fine(space.start({}, "--to", "stored", "--execute", command="offsets reset"))
    _fine(space.start({}, "--once"))
    assert _ids(nessie, "again_t") == [*range(KEYS + 1), 1000]


def _ids(nessie: Nessie, table: str) -> list[int]:
    return sorted(row["id"] for row in _open(nessie, table).scan().to_arrow().to_pylist())


def _fine(sink: Sink) -> Run:
    run = sink.wait(240)
    assert run.code == 0, run.text[-6000:]
    return run
