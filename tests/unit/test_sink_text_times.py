"""Times that Iceberg has no type for -> text columns: told by the schema of the source, a header, or the table's own
column."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import attrs
import pyarrow as pa
import pytest

from connector.iceberg.types.schemas.schema_evolution import union_shapes
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.kafka.consumer.records.record_bounds import BatchSection, BatchSections
from connector.kafka.consumer.records.record_columns import read_records
from connector.settings import EventSettings
from connector.sink.convert.decoder import decode
from serde.connect.text_columns import WITH_NANOSECONDS, find_text_types
from serde.events.kinds.header_names import CONNECTOR_HEADER
from tests.model.record_batches import Record, written
from tests.unit import sink_plans
from tests.unit.json_messages import framed

SPAN_US = -3_020_399_000_000
TIME = {"type": "int64", "name": "io.debezium.time.MicroTime", "optional": True, "field": "t"}
ROW = [{"type": "int64", "optional": False, "field": "id"}, TIME]


def envelope(connector: str) -> bytes:
    """A create of a table with a TIME column."""
    image = {"type": "struct", "optional": True, "fields": ROW, "name": "p.d.t.Value"}
    source = [{"type": "string", "field": "connector"}, {"type": "int64", "field": "ts_ms"}]
    fields: list[Any] = [
        {**image, "field": "before"},
        {**image, "field": "after"},
        {"type": "struct", "fields": source, "name": f"io.debezium.connector.{connector}.Source", "field": "source"},
        {"type": "string", "field": "op"},
    ]
    payload = {"before": None, "after": {"id": 1, "t": SPAN_US}, "source": {"connector": connector, "ts_ms": 1}}
    return framed(fields, {**payload, "op": "c"}, "p.d.t.Envelope")


@pytest.mark.parametrize("connector", ["mysql", "mariadb"])
def test_an_envelope_tells_by_its_source(connector: str) -> None:
    """The column is text for each event of the connector, whatever its value is."""
    run = sink_plans.run(envelope(connector))
    (need,) = decode(run, sink_plans.plan()).needs
    assert union_shapes([need.row]).field("t").type == pa.string()
    table = sink_plans.append(0, {"id": pa.int64(), "t": pa.string(), "__deleted": pa.string()})
    assert sink_plans.rows(decode(run, sink_plans.plan(table)))[0]["t"] == "-838:59:59.000000"


@pytest.mark.parametrize(
    ("kind", "name", "number", "text"),
    [
        ("int64", "io.debezium.time.MicroTime", SPAN_US, "-838:59:59.000000"),
        ("int64", "io.debezium.time.NanoTime", SPAN_US * 1000, "-838:59:59.000000000"),
        ("int32", "io.debezium.time.Time", 86_400_001, "24:00:00.001"),
        ("int32", "org.apache.kafka.connect.data.Time", 1, "00:00:00.001"),
    ],
)
def test_times_of_every_precision_mode(kind: str, name: str, number: int, text: str) -> None:
    """Whatever `time.precision.mode` makes numbers of TIME, they are text."""
    fields = [ROW[0], {"type": kind, "name": name, "optional": True, "field": "t"}]
    run = attrs.evolve(sink_plans.run(framed(fields, {"id": 1, "t": number})), connector="mysql")
    (need,) = decode(run, sink_plans.plan()).needs
    assert need.row.field("t").type == pa.string()
    table = sink_plans.append(0, {"id": pa.int64(), "t": pa.string()})
    assert sink_plans.rows(decode(run, sink_plans.plan(table))) == [{"id": 1, "t": text}]


def test_other_connectors_have_times_of_day() -> None:
    """A value that is no time of day stays a dead letter there."""
    assert sink_plans.dead(decode(sink_plans.run(envelope("postgresql")), sink_plans.plan())) == {
        0: "field after.t: value cannot be represented (io.debezium.time.MicroTime); "
        "a text column holds it (debezium.sink.iceberg.temporal-as-text)"
    }


def test_a_flattened_event_is_told_by_its_header() -> None:
    """The name of the connector in the first record's headers decides before there is a table."""
    run = sink_plans.run(framed(ROW, {"id": 1, "t": SPAN_US}))
    assert sink_plans.dead(decode(run, sink_plans.plan()))
    (need,) = decode(attrs.evolve(run, connector="mariadb"), sink_plans.plan()).needs
    assert need.row.field("t").type == pa.string()


def test_a_text_column_takes_any_time() -> None:
    """Where the table has text nothing else has to tell; a column of times takes what fits."""
    run = sink_plans.run(framed(ROW, {"id": 1, "t": SPAN_US}), framed(ROW, {"id": 2, "t": 1}))
    text = sink_plans.plan(sink_plans.append(0, {"id": pa.int64(), "t": pa.string()}))
    assert [row["t"] for row in sink_plans.rows(decode(run, text))] == ["-838:59:59.000000", "00:00:00.000001"]
    times = sink_plans.plan(sink_plans.append(0, {"id": pa.int64(), "t": pa.time64("us")}))
    outcome = decode(attrs.evolve(run, connector="mysql"), times)
    assert [row["id"] for row in sink_plans.rows(outcome)] == [2]
    assert list(sink_plans.dead(outcome)) == [0]


# SQL Server page, "Temporal values" and "Basic types": time(7), datetime2(7) and datetimeoffset(7) are their defaults.
FINE = {
    "nt": ("int64", "io.debezium.time.NanoTime", 36_000_123_456_700, "10:00:00.123456700"),
    "ts": ("int64", "io.debezium.time.NanoTimestamp", 1_700_000_000_123_456_700, "2023-11-14T22:13:20.123456700"),
    "tz": ("string", "io.debezium.time.ZonedTimestamp", *["2024-02-29T10:00:00.1234567+02:00"] * 2),
    "it": ("string", "io.debezium.time.IsoTime", *["10:00:00.1234567"] * 2),
    "its": ("string", "io.debezium.time.IsoTimestamp", *["2024-02-29T10:00:00.1234567"] * 2),
}
FINE_ROW = [ROW[0], *({"type": k, "name": n, "optional": True, "field": f} for f, (k, n, *_) in FINE.items())]
FINE_EVENT = framed(FINE_ROW, {"id": 1, **{field: value for field, (_, _, value, _) in FINE.items()}})
V3 = EventSettings("auto", "auto", (), "__", temporal_as_text=frozenset({WITH_NANOSECONDS}))


def test_times_of_seven_digits_are_text() -> None:
    """SQL Server's times have a digit more than Iceberg's, so their columns are text, whatever a value has."""
    run = attrs.evolve(sink_plans.run(FINE_EVENT), connector="sqlserver")
    (need,) = decode(run, sink_plans.plan()).needs
    assert {field.type for field in need.row if field.name in FINE} == {pa.string()}
    table = sink_plans.append(0, {"id": pa.int64(), **dict.fromkeys(FINE, pa.string())})
    (row,) = sink_plans.rows(decode(run, sink_plans.plan(table)))
    assert row == {"id": 1, **{field: text for field, (*_, text) in FINE.items()}}


@pytest.mark.parametrize("connector", ["sqlserver", "oracle", "db2"])
def test_timestamps_of_nanoseconds_are_text_where_tables_have_none(connector: str) -> None:
    """Format version 3 has them; without it they are text for the connectors whose databases have such digits."""
    fields = [ROW[0], {"type": "int64", "name": "io.debezium.time.NanoTimestamp", "optional": True, "field": "ts"}]
    run = attrs.evolve(sink_plans.run(framed(fields, {"id": 1, "ts": FINE["ts"][2]})), connector=connector)
    (need,) = decode(run, sink_plans.plan()).needs
    assert need.row.field("ts").type == pa.string()
    (need,) = decode(run, sink_plans.plan(events=V3)).needs
    assert need.row.field("ts").type == pa.timestamp("ns")
    assert "io.debezium.time.NanoTimestamp" in find_text_types(connector, frozenset())
    assert "io.debezium.time.NanoTimestamp" not in find_text_types(connector, frozenset({WITH_NANOSECONDS}))


def test_tables_that_have_timestamps_already_take_what_fits() -> None:
    """Zeros below the microsecond are no digits; what has more is a dead letter there, as before."""
    whole = {"nt": 36_000_123_456_000, "ts": 1_700_000_000_123_456_000, "tz": "2024-02-29T10:00:00.1234560+02:00"}
    run = sink_plans.run(FINE_EVENT, framed(FINE_ROW, {"id": 2, **whole}))
    types = {"nt": pa.time64("us"), "ts": pa.timestamp("us"), "tz": pa.timestamp("us", "UTC")}
    table = sink_plans.append(0, {"id": pa.int64(), **types, "it": pa.string(), "its": pa.string()})
    outcome = decode(attrs.evolve(run, connector="sqlserver"), sink_plans.plan(table))
    (row,) = sink_plans.rows(outcome)
    assert (row["id"], row["ts"]) == (2, datetime(2023, 11, 14, 22, 13, 20, 123456))
    assert list(sink_plans.dead(outcome)) == [0]


def test_a_fetch_tells_the_connector_of_its_first_record() -> None:
    """The header is found among others; a record without it, or with broken headers, tells nothing."""

    def told(*headers: tuple[str, bytes | None]) -> str | None:
        body = written(Record(0, None, b"{}", headers), 0)
        return ConsumerRecords.of_fetched(
            "t", 0, read_records(body, BatchSections.of([BatchSection(0, len(body), 1, 0)]), 0, 9)
        ).connector

    assert told(("a", None), (CONNECTOR_HEADER, b"mysql"), ("z", b"1")) == "mysql"
    assert told(("a", b"b")) is None
    assert told() is None
