"""The `icebergevents` consumer, as on Debezium Server Iceberg's page."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa

from connector.iceberg.catalog.table_layout import TableLayout
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.settings import load
from connector.settings.iceberg.new_tables.sort_order import parse_sort_term
from connector.sink.convert.decoder import decode
from connector.sink.convert.events import icebergevents
from connector.sink.model.plan import TablePlan
from tests.unit.sink_plans import dead, plan, rows

GOOD = {"bootstrap.servers": "localhost:9092", "topics": "t", "debezium.sink.iceberg.warehouse": "/w"}
NOW_MS = 1_700_000_000_123


def _table() -> TablePlan:
    spec = '{"spec-id":0,"fields":[]}'
    layout = TableLayout("d.e", "u", "/nowhere", icebergevents.SCHEMA.model_dump_json(), spec, 0, {}, {})
    return TablePlan(0, layout, upsert=False, keep_deletes=False, committed={("t", 0): 11})


def _run(*records: tuple[bytes | None, bytes | None]) -> ConsumerRecords:
    keys, values = zip(*records, strict=True)
    offsets = np.arange(10, 10 + len(records))
    return ConsumerRecords("t", 0, offsets, pa.array(keys, pa.binary()), pa.array(values, pa.binary()))


def test_every_event_is_a_row_of_text() -> None:
    """Destination, key and value as they came, and the time of the batch; a tombstone is a row without value."""
    outcome = decode(
        _run((b"k0", b"{}"), (b"k1", b'{"a": 1}'), (None, b"\xc3\xa4"), (b"k3", None)), plan(_table(), raw_ms=NOW_MS)
    )
    found = rows(outcome)
    assert [(row["event_key"], row["event_value"]) for row in found] == [("k1", '{"a": 1}'), (None, "ä"), ("k3", None)]
    assert {row["event_destination"] for row in found} == {"t"}
    assert {row["event_sink_epoch_ms"] for row in found} == {NOW_MS}
    when = dt.datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=dt.UTC)
    assert {row["event_sink_timestamptz"] for row in found} == {when}


def test_bytes_that_are_no_text_are_dead() -> None:
    """A key or value that is no UTF-8 is a dead letter, its neighbours are rows."""
    outcome = decode(
        _run((b"a", b"{}"), (b"b", b"\xff"), (b"\xfe", b"{}"), (b"d", b"x")), plan(_table(), raw_ms=NOW_MS)
    )
    assert list(dead(outcome)) == [1, 2]
    assert [row["event_key"] for row in rows(outcome)] == ["d"]


def test_the_table_is_the_seeds() -> None:
    """Columns, which of them is required, partitions and order are those of Debezium Server Iceberg's definition."""
    assert [(f.field_id, f.name, str(f.field_type), f.required) for f in icebergevents.SCHEMA.fields] == [
        (1, "event_destination", "string", True),
        (2, "event_key", "string", False),
        (3, "event_value", "string", False),
        (4, "event_sink_epoch_ms", "long", False),
        (5, "event_sink_timestamptz", "timestamptz", False),
    ]
    terms = [(term.column, term.transform) for term in icebergevents.PARTITIONS]
    assert terms == [("event_destination", "identity"), ("event_sink_timestamptz", "hour")]
    assert ("debezium_events", (parse_sort_term("event_sink_epoch_ms nulls last"),)) == (
        icebergevents.TABLE,
        icebergevents.SORT_ORDER,
    )


def test_the_seeds_settings_load() -> None:
    """The two lines of Debezium Server's page choose that consumer, which never upserts."""
    settings = load(
        [], GOOD | {"debezium.sink.type": "icebergevents", "debezium.sink.iceberg.catalog-name": "default"}, {}
    )
    assert settings.table.events_only
    assert not settings.table.upsert


def test_options_that_say_nothing_of_text_are_noted() -> None:
    """A file of the other consumer runs, and says what of it does nothing: all that is said of rows."""
    idle = {
        "debezium.sink.iceberg.upsert": "true",
        "debezium.sink.iceberg.upsert-keep-deletes": "false",
        "debezium.sink.iceberg.table-prefix": "p_",
        "debezium.sink.iceberg.partition-by": "a",
        "debezium.sink.iceberg.partition-by.t": "a",
        "debezium.sink.iceberg.temporal-as-text": "*",
        "iceberg.table.debezium_events.id-columns": "a",
        "truncate.enabled": "true",
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": "http://r",
    }
    used = {
        "debezium.sink.type": "icebergevents",
        "debezium.sink.iceberg.format-version": "3",
        "schema.evolution": "none",
        "iceberg.table.debezium_events.maintenance.enabled": "false",
        "iceberg.table.debezium_events.commit-branch": "b",
        "iceberg.tables.write-props.write.parquet.compression-codec": "zstd",
        "debezium.format.value": "json",
    }
    settings = load([], GOOD | used | idle, {})
    (note,) = settings.notes
    assert not settings.table.auto_create
    assert note == f"these options have no effect on events as text: {', '.join(sorted(idle))}"
    converter = {name: text for name, text in idle.items() if name.startswith("value.converter")}
    assert not load([], GOOD | used | converter | {"transaction.topic": "tx"}, {}).notes
