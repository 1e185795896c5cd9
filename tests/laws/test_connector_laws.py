"""Histories of every connector, in every form that Kafka Connect writes -> the rows of the source, however cut."""

from __future__ import annotations

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.model import avro
from tests.model.event_forms import ENVELOPES, FLATTENED, SHAPES, Event, avro_schema, with_cells, write
from tests.model.events import COLUMNS, Database
from tests.model.life import Life
from tests.model.schema_server import serve_schemas
from tests.model.source_logs import CONNECTORS, PLACED, Connector
from tests.running import draws
from tests.unit.local_sink import LocalSink, local_sink

pytestmark = [pytest.mark.laws, pytest.mark.timeout(900)]

TOPIC = "s.public.t"
HARD = "debezium.sink.iceberg.upsert-keep-deletes=false"
LIFE = Life(5, updated=0.4, moved=0.4, again=0.4, brief=0.1)


def _history(connector: Connector, rng: random.Random) -> Database:
    """A short life with changed keys, incremental reads, and restarts; of truncates only a table could tell."""
    db = Database(TOPIC, rng.choice([1, 3]), clock=connector, rng=rng)
    while len(db.log) < 60:
        db.transaction(*LIFE.steps(rng, set(db.rows), 4))
        if rng.random() < 0.1 and len(db.log) < 40:
            db.again(rng.randrange(max(len(db.log) - 12, 0), len(db.log)))
        if rng.random() < 0.15 and db.rows:
            db.read(rng.choice(sorted(db.rows)))
    return db


def _shape(connector: Connector, value: bytes | None, form: str) -> Event | None:
    if value is None:
        return None
    event: Event = json.loads(value)
    if form in ENVELOPES:
        event = SHAPES[connector](event) if connector in SHAPES else event
        return with_cells(event) if connector == "cassandra" and form == "bare" else event
    return event


def _with_all_fields(events: list[Event | None]) -> list[Event | None]:
    """Events of one schema: each has the fields of all, as those of a connector do."""
    names = dict.fromkeys(name for event in events if event for name in event["source"])
    return [event and {**event, "source": {**dict.fromkeys(names), **event["source"]}} for event in events]


def _sink(folder: str, form: str, registry: str) -> LocalSink:
    lines = [f"topics={TOPIC}", HARD]
    if form == "avro":
        lines.append("value.converter=io.confluent.connect.avro.AvroConverter")
        lines.append(f"value.converter.schema.registry.url={registry}")
        lines.append("key.converter=org.apache.kafka.connect.json.JsonConverter")
        lines.append("key.converter.schemas.enable=false")
    return local_sink(Path(folder), lines)


def _key(key: bytes | None, *, is_document: bool) -> bytes | None:
    """A record's key; MongoDB's has the id as a text."""
    return key if key is None or not is_document else json.dumps({"id": str(json.loads(key)["id"])}).encode()


def _columns(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row.get(name) for name in COLUMNS}


def check(connector: Connector, form: str, seed: int) -> None:
    """One history of a connector in one form, in batches of one size."""
    rng = random.Random(f"{connector} {form} {seed}")
    db = _history(connector, rng)
    added = ",".join(["op", "source.ts_ns", PLACED.get(connector, "table")])
    events = _with_all_fields([_shape(connector, record.value, form) for record in db.log])
    schemas = {avro.ID: json.dumps(avro_schema(next(e for e in events if e)))} if form == "avro" else {}
    values = [write(form, event, added) for event in events]
    keys = [_key(record.key, is_document=connector in SHAPES and form in ENVELOPES) for record in db.log]
    told = zip(db.log, keys, values, strict=True)
    records = [((r.topic, r.partition), key, value) for r, key, value in told if value != b""]
    size = rng.choice([1, 2, 5, 1000])
    with TemporaryDirectory() as folder, serve_schemas(schemas) as registry:
        sink = _sink(folder, form, registry)
        for first in range(0, len(records), size):
            assert sink.process(*records[first : first + size]).dead_letters == 0, sink.letters
        tables = {name: sink.rows(name) for name in sink.destination.rows}
    found = [
        _columns({**row, "id": int(row["_id"] if "_id" in row else row["id"])})
        for rows in tables.values()
        for row in rows
    ]
    wanted = [_columns(db.rows[key]) for key in sorted(db.rows)]
    assert sorted(found, key=lambda row: row["id"]) == wanted, (connector, form, seed, size)


@pytest.mark.parametrize("form", [*ENVELOPES, *FLATTENED])
@pytest.mark.parametrize("connector", CONNECTORS)
def test_histories_end_in_the_rows_of_the_source(connector: Connector, form: str) -> None:
    """With restarts, incremental reads and changed keys, over partitions, in batches of any size."""
    for seed in range(draws(20) // 10):
        check(connector, form, seed)
