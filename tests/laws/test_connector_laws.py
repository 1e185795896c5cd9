"""Histories of every connector, in every form that Kafka Connect writes -> the rows of the source, however cut."""

from __future__ import annotations

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest

from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.sink.convert.decoder import decode
from connector.sink.convert.key_change_headers import pair_with_other_key
from connector.sink.model.plan import TablePlan
from serde.events.kinds.header_names import NEW_KEY_HEADER, OLD_KEY_HEADER
from tests.harness.rounds import draws
from tests.harness.tiers import spread
from tests.model import avro
from tests.model.event_forms import ENVELOPES, FLATTENED, SHAPES, Event, avro_schema, with_cells, write
from tests.model.events import COLUMNS, OUTLIVING, Clock, Database
from tests.model.life import Life
from tests.model.recordings import Record
from tests.model.schema_server import serve_schemas
from tests.model.source_logs import CONNECTORS, PLACED, Connector
from tests.unit.local_sink import LocalSink, local_sink
from tests.unit.sink_plans import DATED, plan, upsert

pytestmark = [pytest.mark.laws, pytest.mark.timeout(900)]

TOPIC = "s.public.t"
BINLOGS: tuple[Clock, ...] = ("mariadb", "mysql_gtid")
TRUNCATING: tuple[Clock | Connector, ...] = ("postgres", "oracle", *BINLOGS)
HARD = "debezium.sink.iceberg.upsert-keep-deletes=false"
OtherKey = tuple[int, str, int]
"""An offset, the name of a header, and the key that it names."""
LIFE = Life(5, updated=0.4, moved=0.4, again=0.4, brief=0.1)
MOVING = Life(5, updated=0.2, moved=0.9)
TRUNCATED = Life(5, updated=1.0)
"""In one partition, and brought in as one batch: of more only a table could tell what is older than a truncate."""


def _history(connector: Clock | Connector, rng: random.Random, life: Life = LIFE) -> Database:
    """A short life with changed keys, incremental reads, restarts, and failovers, or with truncates."""
    truncates = life is TRUNCATED
    db = Database(TOPIC, 1 if truncates else rng.choice([1, 3]), clock=connector, rng=rng)
    while len(db.log) < 60:
        db.transaction(*life.steps(rng, set(db.rows), 4))
        if connector in OUTLIVING and rng.random() < 0.1:
            db.fail_over()
        if truncates and rng.random() < 0.1:
            db.truncate()
        if rng.random() < 0.1 and len(db.log) < 40:
            db.again(rng.randrange(max(len(db.log) - 12, 0), len(db.log)))
        if rng.random() < 0.15 and db.rows:
            db.read(rng.choice(sorted(db.rows)))
    return db


def _shape(connector: Clock | Connector, value: bytes | None, form: str) -> Event | None:
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
    lines = [f"topics={TOPIC}", HARD, "truncate.enabled=true"]
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


def check(connector: Clock | Connector, form: str, seed: int, life: Life = LIFE) -> None:
    """One history of a connector in one form, in batches of one size."""
    rng = random.Random(f"{connector} {form} {seed}")
    db = _history(connector, rng, life)
    added = ",".join(["op", "source.ts_ns", PLACED.get(connector, "table")])
    events = _with_all_fields([_shape(connector, record.value, form) for record in db.log])
    schemas = {avro.ID: json.dumps(avro_schema(next(e for e in events if e)))} if form == "avro" else {}
    values = [write(form, event, added) for event in events]
    keys = [_key(record.key, is_document=connector in SHAPES and form in ENVELOPES) for record in db.log]
    told = zip(db.log, keys, values, strict=True)
    records = [((r.topic, r.partition), key, value) for r, key, value in told if value != b""]
    size = 1000 if life is TRUNCATED else rng.choice([1, 2, 5, 1000])
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


@pytest.mark.parametrize(("connector", "form"), spread([*CONNECTORS, *BINLOGS], [*ENVELOPES, *FLATTENED], 3))
def test_histories_end_in_the_rows_of_the_source(connector: Connector, form: str) -> None:
    """With restarts, incremental reads and changed keys, over partitions, in batches of any size."""
    for seed in range(draws(20) // 10):
        check(connector, form, seed)


@pytest.mark.parametrize("form", ENVELOPES)
@pytest.mark.parametrize("connector", TRUNCATING)
def test_truncates_leave_the_rows_that_came_after_them(connector: Clock | Connector, form: str) -> None:
    """In every form that tells of them, sent again after restarts, and among reads."""
    for seed in range(draws(20) // 10):
        check(connector, form, seed, TRUNCATED)


def _list_other_keys(own: list[Record]) -> list[OtherKey]:
    return sorted((r.offset, name, json.loads(key or b"")["id"]) for r in own for name, key in r.headers)


def _find_other_keys(own: list[Record], table: TablePlan) -> list[OtherKey]:
    """What the sink reads of the headers of one partition's records."""
    at = (TOPIC, own[0].partition)
    run = ConsumerRecords.of_records(at, [(r.offset, r.key, r.value) for r in own], [r.headers for r in own])
    run = run.with_headers(OLD_KEY_HEADER, NEW_KEY_HEADER)
    made = decode(run, plan(table, routes={TOPIC: 0}, ranks={at: 0}, evolve=False))
    headers = [(OLD_KEY_HEADER, run.old_key), (NEW_KEY_HEADER, run.new_key)]
    return sorted(
        (int(offset), name, row["id"])
        for part in made.parts
        for name, keys in headers
        if keys is not None and (pair := pair_with_other_key(part, run.offset, keys, table)) is not None
        for offset, row in zip(pair[1].order.offset, pair[1].rows.to_pylist(), strict=True)
    )


@pytest.mark.parametrize("connector", [one for one in CONNECTORS if one not in SHAPES])
def test_headers_name_the_other_key_of_each_change_of_key(connector: Connector) -> None:
    """Deletes, their tombstones and creates of a change of key are paired, first copies and those after restarts."""
    table = upsert(0, {**DATED, "__op": pa.string()}, ("id",), dated=True)
    pairs: list[OtherKey] = []
    for seed in range(draws(20) // 5):
        db = _history(connector, random.Random(f"{connector} {seed}"), MOVING)
        for partition in range(db.partitions):
            own = [record for record in db.log if record.partition == partition]
            if own:
                found, wanted = _find_other_keys(own, table), _list_other_keys(own)
                assert found == wanted
                pairs += wanted
    assert pairs, "no key changed"
