"""A warehouse on S3, with nothing configured but the store: the jars come by themselves, sink and source work on it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import attrs
import pytest
from attrs import evolve
from pyiceberg.catalog.sql import SqlCatalog

from tests.conftest import MakeWorkspace
from tests.model.recordings import Record
from tests.relay import Relay
from tests.running import Sink, Workspace
from tests.sources import payload, replica
from tests.store import SECRET, Store
from tests.topics import Topics

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(400)]

ROWS = 500


def _events(names: dict[int, str], start: int) -> list[Record]:
    values = [
        {"id": key, "name": name, "__op": "u", "__deleted": "false", "__source_ts_ns": 1_000 + start + key}
        for key, name in names.items()
    ]
    records = [(json.dumps({"id": value["id"]}).encode(), json.dumps(value).encode()) for value in values]
    return [
        Record("stored.t", 0, start + i, key, value, (), 1_700_000_000_000) for i, (key, value) in enumerate(records)
    ]


def _on(store: Store, warehouse: str, prefix: str) -> dict[str, str]:
    return {f"{prefix}{key}": value for key, value in {**store.properties, "warehouse": warehouse}.items()}


def _reader(space: Workspace, store: Store, warehouse: str) -> Sink:
    """Start a source that publishes the table's changes."""
    own = {
        key: value for key, value in space.properties.items() if not key.startswith(("debezium.", "topics", "iceberg."))
    }
    catalog = {f"iceberg.catalog.{key}": value for key, value in space.catalog.items()}
    plain = {f"{what}.converter.schemas.enable": "false" for what in ("key", "value")}
    properties = {
        **own,
        **catalog,
        **_on(store, warehouse, "iceberg.catalog."),
        **plain,
        "connector.class": "IcebergSource",
        "name": "reader",
        "topic.prefix": "read",
        "table.include.list": r"default\.stored_t",
        "poll.interval.ms": "200",
        "iceberg.catalog.catalog-name": space.name,
    }
    path = space.home / f"reader-{len(list(space.home.glob('*.properties')))}.properties"
    path.write_text("".join(f"{k}={v}\n" for k, v in properties.items()).replace("\\", "\\\\"), encoding="utf-8")
    return Sink(path, ())


def _names(topics: Topics) -> dict[int, Any]:
    rows = replica(topics.read("read.default.stored_t")).values()
    return {row["id"]: row["name"] for row in rows}


def test_a_sink_loads_into_s3(topics: Topics, plain_workspace: MakeWorkspace, store: Store) -> None:
    """A first load with nothing configured but the store: its rows are there, and no secret is in the log."""
    records = [attrs.evolve(record, topic="loaded.t") for record in _events(dict.fromkeys(range(ROWS), "x"), 0)]
    topics.replay(records)
    given = {"topics": "loaded.t", **_on(store, store.make_bucket("loads") + "/warehouse", "debezium.sink.iceberg.")}
    run = plain_workspace("loaded", given).start(None, "--once").wait(240)
    assert (run.code, run.total("events")) == (0, ROWS), run.text[-6000:]
    assert SECRET not in run.text
    assert sorted(store.rows("loads/warehouse/default/loaded_t/data")["id"].to_pylist()) == list(range(ROWS))


@pytest.mark.thorough
def test_sink_and_source_work_on_s3(
    topics: Topics, plain_workspace: MakeWorkspace, store: Store, tmp_path: Path
) -> None:
    """First load, upserts, a full read and the merge-on-read changes: all of it on S3, and no secret in a log."""
    warehouse = store.make_bucket("first-load") + "/warehouse"
    batches = {"topics": "stored.t", "debezium.sink.batch.interval-ms": "200"}
    space = plain_workspace("stored", {**batches, **_on(store, warehouse, "debezium.sink.iceberg.")})
    names = {key: f"name {key}" for key in range(ROWS)}
    topics.replay(_events(names, 0))
    running = [space.start()]
    try:
        assert running[0].wait_until(lambda: running[0].commits() > 0, 240), running[0].text()[-6000:]
        running.append(_reader(space, store, warehouse))
        assert running[1].wait_until(lambda: _names(topics) == names, 240, 0.5), running[1].text()[-6000:]
        changed = {key: f"changed {key}" for key in range(0, ROWS, 7)}
        topics.replay(_events(changed, ROWS), create=False)
        assert running[1].wait_until(lambda: _names(topics) == names | changed, 120, 0.5), running[1].text()[-6000:]
        runs = [one.terminate() for one in running]
    finally:
        for one in running:
            one.kill()
    assert [run.code for run in runs] == [0, 0], [run.text[-6000:] for run in runs]
    updates = [payload(r.value) for r in topics.read("read.default.stored_t") if r.value is not None]
    assert sum(event["op"] == "u" for event in updates) == len(changed)
    assert not any(SECRET in run.text for run in runs)


@pytest.mark.thorough
def test_maintenance_works_on_s3(topics: Topics, plain_workspace: MakeWorkspace, store: Store) -> None:
    """Every task of `icebridge maintain`, where Hadoop knows nothing of the store."""
    warehouse = store.make_bucket("maintained") + "/warehouse"
    space = plain_workspace("kept", {"topics": "kept.t", **_on(store, warehouse, "debezium.sink.iceberg.")})
    for turn in range(3):
        events = _events(dict.fromkeys(range(turn, 60, turn + 1), f"turn {turn}"), turn * 100)
        topics.replay([attrs.evolve(event, topic="kept.t") for event in events], create=not turn)
        assert space.start({}, "--once").wait(240).code == 0
    tasks = "convert,rewrite,manifests,expire,orphans"
    done = space.start({}, "--json", "--execute", "--task", tasks, command="maintain").wait(240)
    assert done.code == 0, done.text[-6000:]
    said = next(json.loads(line) for line in done.text.splitlines() if line.startswith('{"executed"'))
    (report,) = said["tables"].values()
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
        on = _on(store, store.make_bucket(name) + "/warehouse", "debezium.sink.iceberg.")
        own = {"debezium.sink.iceberg.s3.endpoint": f"http://127.0.0.1:{relay.port}", "errors.retry.timeout": "20000"}
        more = {"iceberg.maintenance.rewrite.min-input-files": "2", "debezium.sink.batch.max-events": "40"}
        space = plain_workspace(name, {"topics": f"{name}.t", **on, **own, **more})
        names = dict.fromkeys(range(60), "first") | dict.fromkeys(range(0, 60, 2), "second")
        records = [
            *_events(dict.fromkeys(range(60), "first"), 0),
            *_events(dict.fromkeys(range(0, 60, 2), "second"), 100),
        ]
        topics.replay([evolve(record, topic=f"{name}.t") for record in records])
        assert space.start({}, "--once").wait(240).code == 0
        first, gone = relay.requests, list[int]()

        def vanish(count: int) -> None:
            if count >= first + after and not gone:
                gone.append(count)
                relay.leave()
                threading.Timer(AWAY_FOR_S, relay.come_back).start()

        relay.on_request = vanish
        maintain = ("--json", "--execute", "--task", "convert,rewrite,manifests,orphans")
        disturbed = space.start({}, *maintain, command="maintain").wait(240)
        assert gone, f"{relay.requests - first} requests"
        assert disturbed.code in (0, 1), disturbed.text[-6000:]
        relay.come_back()
        last = space.start({}, *maintain, command="maintain").wait(240)
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
    given = {**_on(store, warehouse, "debezium.sink.iceberg."), "topics": topic}
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
