"""Tables whose shape is fixed beforehand: declared in the settings, and the one of the icebergevents consumer."""

from __future__ import annotations

import json

import pytest

from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.model.recordings import Record

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]


def _records(topic: str, *values: dict[str, object] | None) -> list[Record]:
    return [
        Record(topic, 0, i, json.dumps({"id": i}).encode(), v and json.dumps(v).encode(), (), 1_700_000_000_000)
        for i, v in enumerate(values)
    ]


def test_a_declared_table_is_made_and_kept(topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake) -> None:
    """Columns, required, key, partition, order, place and property are the declared ones; events are made to fit."""
    rows = [{"id": "1", "at": 0, "price": "1.5", "more": 1}, {"id": 1, "at": "2024-05-06"}, {"at": 1}]
    topics.replay(_records("declared.t", *rows))
    space = make_workspace(
        "declared",
        {
            "topics": "declared.t",
            "schema.columns": "id long required, at timestamp, price decimal(9, 2), note string",
            "iceberg.tables.default-id-columns": "id",
            "debezium.sink.iceberg.upsert-keep-deletes": "false",
            "debezium.sink.iceberg.allow-field-addition": "false",
            "debezium.sink.iceberg.partition-by": "truncate(id, 10)",
            "debezium.sink.iceberg.sort-by": "price desc, bucket(id, 4) nulls last, nothing",
            "iceberg.tables.auto-create-props.write.parquet.compression-codec": "gzip",
        },
    )
    place = space.home / "elsewhere"
    run = space.run({"table.location": str(place)})
    assert run.code == 0, run.text[-6000:]
    tables = lake(space)
    assert tables.types("declared_t") == {"id": "long", "at": "timestamp", "price": "decimal(9, 2)", "note": "string"}
    assert tables.identifiers("declared_t") == {"id"}
    table = tables.java("declared_t")
    assert str(table.location()) == str(place)
    assert dict(table.properties())["write.parquet.compression-codec"] == "gzip"
    assert "truncate[10]" in str(table.spec().toString())
    order = table.sortOrder()
    assert [str(f.toString()) for f in order.fields()] == ["identity(3) DESC NULLS LAST", "bucket[4](1) ASC NULLS LAST"]
    assert {file["sort_order_id"] for file in tables.files("declared_t") if not file["content"]} == {order.orderId()}
    assert [(r["id"], r["price"], r["note"]) for r in tables.rows("declared_t")] == [(1, None, None)]
    assert run.total("dead_letters") == 1


def test_every_event_as_text(topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake) -> None:
    """`debezium.sink.type=icebergevents`: one table with every event of all topics, by destination and hour, once."""
    for topic in ("text.a", "text.b"):
        topics.replay(_records(topic, {"x": 1}, None, {"y": [1]}))
    space = make_workspace("text", {"topics": "text.a,text.b", "debezium.sink.type": "icebergevents"})
    runs = [space.run(), space.run()]
    assert [run.code for run in runs] == [0, 0], runs[0].text[-6000:]
    tables = lake(space)
    found = sorted(
        (r["event_destination"], r["event_key"], r["event_value"] or "") for r in tables.rows("debezium_events")
    )
    expected = ['{"id": 0}', '{"id": 1}', '{"id": 2}']
    values = ['{"x": 1}', "", '{"y": [1]}']
    assert found == sorted((t, k, v) for t in ("text.a", "text.b") for k, v in zip(expected, values, strict=True))
    table = tables.java("debezium_events")
    assert [str(field.transform().toString()) for field in table.spec().fields()] == ["identity", "hour"]
    (order,) = table.sortOrder().fields()
    assert (int(order.sourceId()), str(order.nullOrder().name())) == (4, "NULLS_LAST")
