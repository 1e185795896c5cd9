"""`iceberg.tables.topic-to-table-mapping`: topics that are told their tables, several of which may share one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from connector.errors import ConfigError
from connector.settings import SinkSettings, load
from connector.sink.destinations.naming import table_name
from tests.unit.local_sink import local_sink

MAP = "iceberg.tables.topic-to-table-mapping"
GOOD = {"bootstrap.servers": "localhost:9092", "debezium.sink.iceberg.warehouse": "/w"}


def _load(given: dict[str, str]) -> SinkSettings:
    return load([], GOOD | given, {})


def test_a_mapped_topic_has_the_table_as_it_is_written() -> None:
    """Prefix, expression and case are for the other topics, which are named as ever."""
    told = {
        "topics": "shop.a,shop.b,shop.c",
        MAP: "shop.a:lake.Orders, shop.b:raw.eu.orders",
        "debezium.sink.iceberg.table-prefix": "p_",
        "debezium.sink.iceberg.destination-regexp": "shop",
        "debezium.sink.iceberg.destination-regexp-replace": "x",
        "debezium.sink.iceberg.destination-uppercase-table-names": "true",
    }
    rule = _load(told).table
    assert [table_name(f"shop.{end}", rule) for end in "abc"] == ["lake.Orders", "raw.eu.orders", "P_X_C"]


@pytest.mark.parametrize("namespace", ["default", "lake", "lake.raw"])
def test_one_table_has_one_name(namespace: str) -> None:
    """A table in the sink's own namespace is the same with it and without: a batch commits to it once."""
    told = {
        "topics": "orders,a,b,c",
        MAP: f"a:{namespace}.orders,b:orders,c:{namespace}.sub.orders",
        "debezium.sink.iceberg.table-namespace": namespace,
    }
    rule = _load(told).table
    assert [table_name(topic, rule) for topic in ("orders", "a", "b", "c")] == ["orders"] * 3 + [
        f"{namespace}.sub.orders"
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({MAP: "a"}, "topic:table"),
        ({MAP: "a:"}, "topic:table"),
        ({MAP: ":x"}, "topic:table"),
        ({MAP: "a:x:y"}, "topic:table"),
        ({MAP: "a b:x"}, "topic name"),
        ({MAP: "a:lake..x"}, "topic:table"),
        ({MAP: "a:x,a:y"}, "twice"),
        ({MAP: "a:x", "iceberg.tables": "lake.t"}, "keep one"),
        ({MAP: "a:x", "iceberg.tables.dynamic-enabled": "true", "iceberg.tables.route-field": "f"}, "keep one"),
        ({MAP: "a:x", "collection.name.format": "${source.table}"}, "keep one"),
        ({MAP: "b:x"}, "not in topics"),
        ({MAP: "a:x", "topics": "a,b", "schema.columns": "id long"}, "one table"),
    ],
)
def test_a_mapping_that_cannot_be_meant_is_refused(given: dict[str, str], says: str) -> None:
    """An unknown form, a topic twice or that is not read, and tables that events choose too, are faults."""
    with pytest.raises(ConfigError, match=says):
        _load({"topics": "a"} | given)


def test_a_mapping_goes_with_topics_by_expression_and_with_one_declared_table() -> None:
    """Topics that an expression finds may be mapped; topics that share a table may have its columns declared."""
    assert table_name("a", _load({"topics.regex": "a.*", MAP: "a:lake.x"}).table) == "lake.x"
    assert _load({"topics": "a,b", MAP: "a:x,b:default.x", "schema.columns": "id long"})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("topic.to.existing.resource.mapping=a:x,a:y", "twice"),
        (f"{MAP}=a:x", "set topic.to.existing.resource.mapping"),
    ],
)
def test_indexes_have_a_mapping_of_their_own(tmp_path: Path, given: str, says: str) -> None:
    """The mapping to indexes names a topic once, as the one to tables does, which is refused for indexes."""
    file = tmp_path / "sink.properties"
    text = "debezium.sink.type=opensearch\nbootstrap.servers=localhost:9\ntopics=a\nconnection.url=http://localhost:1\n"
    file.write_text(f"{text}debezium.sink.iceberg.warehouse=/w\n{given}\n")
    with pytest.raises(ConfigError, match=says):
        load([file], environ={})


def _event(moment: int, name: str, table: str) -> tuple[bytes, bytes]:
    source = {"connector": "postgresql", "name": "s", "db": "d", "table": table, "ts_ns": moment * 10**6}
    value = {"before": None, "after": {"id": 1, "name": name}, "op": "c", "source": source}
    return b'{"id":1}', json.dumps(value).encode()


def _rows(sink: Any) -> list[str]:
    return [row["name"] for row in sink.rows("lake.all")]


def test_topics_of_one_table_meet_in_the_order_of_their_events(tmp_path: Path) -> None:
    """Equal keys of two topics are one row, the latest event's, whichever topic it comes by, also in a later batch."""
    sink = local_sink(tmp_path, ["topics=one,two,three", f"{MAP}=one:lake.all,two:lake.all"])
    sink.process(
        (("one", 0), *_event(1_700_000_000_005, "newer", "x")),
        (("two", 0), *_event(1_700_000_000_001, "older", "y")),
        (("three", 0), *_event(1_700_000_000_001, "elsewhere", "z")),
    )
    assert _rows(sink) == ["newer"]
    assert [row["name"] for row in sink.rows("three")] == ["elsewhere"]
    sink.process((("two", 0), *_event(1_700_000_000_007, "newest", "y")))
    assert _rows(sink) == ["newest"]
