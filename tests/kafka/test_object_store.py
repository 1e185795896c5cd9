"""A warehouse on S3, with nothing configured but the store: the jars come by themselves, sink and source work on it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.model.recordings import Record
from tests.runs.stored_tables import ROWS, load_change_and_publish, maintain, make_events, sink_properties
from tests.servers.relay import Relay
from tests.servers.store import SECRET, Store

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(400)]


def test_a_sink_loads_into_s3(topics: Topics, plain_workspace: MakeWorkspace, store: Store) -> None:
    """A first load with nothing configured but the store: its rows are there, and no secret is in the log."""
    topics.replay(make_events("loaded.t", dict.fromkeys(range(ROWS), "x"), 0))
    given = {"topics": "loaded.t", **sink_properties(store.properties, store.make_bucket("loads") + "/warehouse")}
    run = plain_workspace("loaded", given).start(None, "--once").wait(240)
    assert (run.code, run.total("events")) == (0, ROWS), run.text[-6000:]
    assert SECRET not in run.text
    assert sorted(store.rows("loads/warehouse/default/loaded_t/data")["id"].to_pylist()) == list(range(ROWS))


@pytest.mark.thorough
def test_sink_and_source_work_on_s3(topics: Topics, plain_workspace: MakeWorkspace, store: Store) -> None:
    """First load, upserts, a full read and the merge-on-read changes: all of it on S3, and no secret in a log."""
    warehouse = store.make_bucket("first-load") + "/warehouse"
    runs = load_change_and_publish(topics, plain_workspace, "stored", store.properties, warehouse)
    assert not any(SECRET in run.text for run in runs)


@pytest.mark.thorough
def test_maintenance_works_on_s3(topics: Topics, plain_workspace: MakeWorkspace, store: Store) -> None:
    """Every task of `icebridge maintain`, where Hadoop knows nothing of the store."""
    warehouse = store.make_bucket("maintained") + "/warehouse"
    space = plain_workspace("kept", {"topics": "kept.t", **sink_properties(store.properties, warehouse)})
    for turn in range(3):
        events = make_events("kept.t", dict.fromkeys(range(turn, 60, turn + 1), f"turn {turn}"), turn * 100)
        topics.replay(events, create=not turn)
        assert space.start({}, "--once").wait(240).code == 0
    report = maintain(space)
    assert [one["failure"] for one in report["done"].values()] == [None] * len(report["done"])
    assert {"convert", "orphans"} <= report["done"].keys()
    assert report["state"]["equality_deletes"] == 0


AWAY_FOR_S = 6.0


@pytest.mark.thorough
@pytest.mark.parametrize("after", [45])
def test_maintenance_of_a_store_that_is_away(
    topics: Topics, plain_workspace: MakeWorkspace, store: Store, after: int
) -> None:
    """The store goes away after some requests of a run, and comes back while it is tried again, or too late: no row is
    lost, and the next run does the work.
    """
    with Relay(store.port) as relay:
        name = f"away{after}"
        on = sink_properties(store.properties, store.make_bucket(name) + "/warehouse")
        own = {"debezium.sink.iceberg.s3.endpoint": f"http://127.0.0.1:{relay.port}", "errors.retry.timeout": "20000"}
        more = {"iceberg.maintenance.rewrite.min-input-files": "2", "debezium.sink.batch.max-events": "40"}
        space = plain_workspace(name, {"topics": f"{name}.t", **on, **own, **more})
        names = dict.fromkeys(range(60), "first") | dict.fromkeys(range(0, 60, 2), "second")
        records = [
            *make_events(f"{name}.t", dict.fromkeys(range(60), "first"), 0),
            *make_events(f"{name}.t", dict.fromkeys(range(0, 60, 2), "second"), 100),
        ]
        topics.replay(records)
        assert space.start({}, "--once").wait(240).code == 0
        first, gone = relay.requests, list[int]()

        def vanish(count: int) -> None:
            if count >= first + after and not gone:
                gone.append(count)
                relay.leave()
                threading.Timer(AWAY_FOR_S, relay.come_back).start()

        relay.on_request = vanish
        tasks = ("--json", "--execute", "--task", "convert,rewrite,manifests,orphans")
        disturbed = space.start({}, *tasks, command="maintain").wait(240)
        assert gone, f"{relay.requests - first} requests"
        assert disturbed.code in (0, 1), disturbed.text[-6000:]
        relay.come_back()
        last = space.start({}, *tasks, command="maintain").wait(240)
        assert last.code == 0, last.text[-6000:]
        lake = SqlCatalog(space.name, uri=f"sqlite:///{space.home / 'catalog.db'}", **store.properties)
        rows = lake.load_table(f"default.{name}_t").scan().to_arrow().to_pylist()
        assert sorted((row["id"], row["name"]) for row in rows) == sorted(names.items())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"warehouse": "s3://no-such-bucket/w"}, "bucket does not exist"),
        ({"io-impl": "org.example.NoSuchIO"}, "NoSuchIO"),
    ],
)
def test_what_no_retry_mends_stops_at_once(
    topics: Topics, plain_workspace: MakeWorkspace, store: Store, change: dict[str, str], told: str
) -> None:
    """A bucket or class that is not there ends the run with its first error, said once, and no retry."""
    topic = f"stop-{len(told)}.t"
    topics.replay([Record(topic, 0, 0, b'{"id": 1}', b'{"id": 1, "__op": "c"}', (), 1_700_000_000_000)])
    warehouse = store.make_bucket("stops") + "/warehouse"
    given = {**sink_properties(store.properties, warehouse), "topics": topic}
    space = plain_workspace(f"stop{len(told)}", given | {f"debezium.sink.iceberg.{k}": v for k, v in change.items()})
    run = space.start(None, "--once").wait(120)
    assert run.code == 1, run.text[-6000:]
    assert not any(line["event"] == "will try again" for line in run.lines), run.text[-6000:]
    stopped = next((line for line in run.lines if line["event"] == "stopped"), None)
    assert stopped is not None, run.text[-6000:]
    assert (stopped["kind"], told in stopped["faults"][0]) == ("FatalError", True), stopped


@pytest.mark.thorough
def test_no_secret_is_seen_while_a_database_is_away(topics: Topics, plain_workspace: MakeWorkspace) -> None:
    """The driver comes by itself, a database that is away is waited for, and its password is in no log or command."""
    topics.replay([Record("stored.away", 0, 0, b'{"id": 1}', b'{"id": 1, "__op": "c"}', (), 1_700_000_000_000)])
    uri = f"jdbc:postgresql://127.0.0.1:9/lake?user=u&password={SECRET}"
    given = {"uri": uri, "jdbc.password": SECRET, "token": SECRET}
    extra = {f"debezium.sink.iceberg.{key}": text for key, text in given.items()}
    space = plain_workspace("stored_away", {"topics": "stored.away", "errors.retry.timeout": "3000", **extra})
    sink = space.start(None, "--once")
    assert sink.wait_until(lambda: any(line["event"] == "will try again" for line in sink.lines()), 200)
    commands = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline")]
    assert any(b"SparkSubmit" in command for command in commands)
    assert not any(SECRET.encode() in command for command in commands)
    run = sink.wait(200)
    assert run.code == 1
    assert "refused" in run.text
    assert SECRET not in run.text
