"""Tables in a Nessie catalog, by its Iceberg REST interface: sink, source, maintenance, other writers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.conftest import MakeWorkspace
from tests.interop.nessie import WAREHOUSE, Nessie
from tests.running import Workspace
from tests.store import Store
from tests.stored_tables import load_change_and_publish, maintain, make_events, sink_properties
from tests.topics import Topics

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]
TURNS, KEYS = 6, 40


@pytest.fixture(scope="module")
def nessie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nessie]:
    """One Nessie over an S3 server."""
    home: Path = tmp_path_factory.mktemp("nessie")
    with Store(home) as store, Nessie(home, store, store.make_bucket("lake")) as running:
        yield running


def _space(make: MakeWorkspace, nessie: Nessie, name: str) -> Workspace:
    given = {"topics": f"{name}.t", **sink_properties(nessie.properties, WAREHOUSE)}
    return make(name, given)


def _open(nessie: Nessie, table: str) -> Any:
    return RestCatalog("nessie", **{**nessie.properties, "warehouse": WAREHOUSE}).load_table(("default", table))


def test_a_source_stops_where_nessie_shows_the_newest_snapshot_only(
    nessie: Nessie, topics: Topics, plain_workspace: MakeWorkspace
) -> None:
    """The sink creates and replaces rows, the source reads them once; then it says that it cannot follow."""
    with pytest.raises(AssertionError, match="changes cannot continue from snapshot"):
        load_change_and_publish(topics, plain_workspace, "nessie", nessie.properties, WAREHOUSE)


def test_other_writers_commit_between_the_sink_s_batches(
    nessie: Nessie, topics: Topics, plain_workspace: MakeWorkspace
) -> None:
    """What PyIceberg appends while the sink replaces rows is there in the end, and so is each key's last row."""
    space = _space(plain_workspace, nessie, "shared")
    topics.replay(make_events("shared.t", dict.fromkeys(range(KEYS), "first"), 0))
    sink = space.start({"debezium.sink.batch.interval-ms": "200"})
    try:
        assert sink.wait_until(lambda: sink.commits() > 0, 240), sink.text()[-6000:]
        for turn in range(1, TURNS):
            topics.replay(make_events("shared.t", dict.fromkeys(range(KEYS), f"turn {turn}"), turn * 100), create=False)
            table = _open(nessie, "shared_t")
            row = {"id": 1000 + turn, "name": "theirs"}
            table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))
        run_events = KEYS * TURNS
        assert sink.wait_until(lambda: sum(int(one.get("events", 0)) for one in sink.lines()) >= run_events, 120)
        run = sink.terminate()
    finally:
        sink.kill()
    assert run.code == 0, run.text[-6000:]
    _convert(space)
    rows = _open(nessie, "shared_t").scan().to_arrow().to_pylist()
    wanted = dict.fromkeys(range(KEYS), f"turn {TURNS - 1}") | {1000 + turn: "theirs" for turn in range(1, TURNS)}
    assert sorted((row["id"], row["name"]) for row in rows) == sorted(wanted.items())


def _convert(space: Workspace) -> None:
    done = space.start({}, "--json", "--execute", "--task", "convert", command="maintain").wait(240)
    assert done.code == 0, done.text[-6000:]


def test_maintenance_works_with_nessie(nessie: Nessie, topics: Topics, plain_workspace: MakeWorkspace) -> None:
    """Every task of `icebridge maintain` ends without a failure, and no row is lost."""
    space = _space(plain_workspace, nessie, "kept")
    for turn in range(3):
        changed = dict.fromkeys(range(turn, 60, turn + 1), f"turn {turn}")
        topics.replay(make_events("kept.t", changed, turn * 100), create=not turn)
        run = space.start({}, "--once").wait(240)
        assert run.code == 0, run.text[-6000:]
    report = maintain(space)
    assert [one["failure"] for one in report["done"].values()] == [None] * len(report["done"])
    assert report["state"]["equality_deletes"] == 0
    assert sorted(row["id"] for row in _open(nessie, "kept_t").scan().to_arrow().to_pylist()) == list(range(60))
