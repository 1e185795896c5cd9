"""A store of files -> a sink that fills a table there, and a source that publishes its changes, as processes.

The same for every store: only properties and a location differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.model.recordings import Record
from tests.runs.processes import Run, Sink, Workspace
from tests.runs.sources import payload, replica

ROWS = 500


def make_events(topic: str, names: Mapping[int, str], start: int) -> list[Record]:
    """Updates that give keys these names, as flattened events from offset `start` on."""
    values = [
        {"id": key, "name": name, "__op": "u", "__deleted": "false", "__source_ts_ns": 1_000 + start + key}
        for key, name in names.items()
    ]
    records = [(json.dumps({"id": value["id"]}).encode(), json.dumps(value).encode()) for value in values]
    return [Record(topic, 0, start + i, key, value, (), 1_700_000_000_000) for i, (key, value) in enumerate(records)]


def sink_properties(store: Mapping[str, str], warehouse: str) -> dict[str, str]:
    """The properties of a sink into a warehouse of a store that has these of Iceberg's."""
    return {f"debezium.sink.iceberg.{key}": value for key, value in {**store, "warehouse": warehouse}.items()}


def load_change_and_publish(
    topics: Topics, make: MakeWorkspace, name: str, store: Mapping[str, str], warehouse: str
) -> list[Run]:
    """See a first load and upserts in the table, and both in a source's topic; the finished runs of sink and source."""
    topic = f"{name}.t"
    batches = {"topics": topic, "debezium.sink.batch.interval-ms": "200"}
    space = make(name, {**batches, **sink_properties(store, warehouse)})
    names = {key: f"name {key}" for key in range(ROWS)}
    topics.replay(make_events(topic, names, 0))
    running = [space.start()]
    try:
        assert running[0].wait_until(lambda: running[0].commits() > 0, 240), running[0].text()[-6000:]
        running.append(_start_source(space, f"{name}_t", store, warehouse))
        assert running[1].wait_until(lambda: _read_names(topics, name) == names, 240, 0.5), running[1].text()[-6000:]
        changed = {key: f"changed {key}" for key in range(0, ROWS, 7)}
        topics.replay(make_events(topic, changed, ROWS), create=False)
        published = names | changed
        assert running[1].wait_until(lambda: _read_names(topics, name) == published, 120, 0.5), running[1].text()[
            -6000:
        ]
        runs = [one.terminate() for one in running]
    finally:
        for one in running:
            one.kill()
    assert [run.code for run in runs] == [0, 0], [run.text[-6000:] for run in runs]
    updates = [payload(r.value) for r in topics.read(_published(name)) if r.value is not None]
    assert sum(event["op"] == "u" for event in updates) == len(changed)
    return runs


def maintain(space: Workspace, *, orphans: bool = True) -> dict[str, Any]:
    """Run every task of `icebridge maintain` on the one table there is, `orphans` or all but that; its report."""
    tasks = "convert,rewrite,manifests,expire" + (",orphans" if orphans else "")
    done = space.start({}, "--json", "--execute", "--task", tasks, command="maintain").wait(240)
    assert done.code == 0, done.text[-6000:]
    said = next(json.loads(line) for line in done.text.splitlines() if line.startswith('{"executed"'))
    (report,) = said["tables"].values()
    return dict(report)


def _start_source(space: Workspace, table: str, store: Mapping[str, str], warehouse: str) -> Sink:
    own = {
        key: value for key, value in space.properties.items() if not key.startswith(("debezium.", "topics", "iceberg."))
    }
    files = {**space.catalog, **store, "warehouse": warehouse, "catalog-name": space.name}
    plain = {f"{what}.converter.schemas.enable": "false" for what in ("key", "value")}
    properties = {
        **own,
        **{f"iceberg.catalog.{key}": value for key, value in files.items()},
        **plain,
        "connector.class": "IcebergSource",
        "name": f"{table}-reader",
        "topic.prefix": "read",
        "table.include.list": rf"default\.{table}",
        "poll.interval.ms": "200",
    }
    path: Path = space.home / f"reader-{len(list(space.home.glob('*.properties')))}.properties"
    path.write_text("".join(f"{k}={v}\n" for k, v in properties.items()).replace("\\", "\\\\"), encoding="utf-8")
    return Sink(path, ())


def _published(name: str) -> str:
    return f"read.default.{name}_t"


def _read_names(topics: Topics, name: str) -> dict[int, Any]:
    return {row["id"]: row["name"] for row in replica(topics.read(_published(name))).values()}
