"""Events that name their tables: Iceberg Kafka Connect's `iceberg.tables*` and the JDBC sink's name format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from connector.errors import ConfigError
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.settings import load
from connector.settings.iceberg.routing import RouteSettings
from connector.sink.convert.decoder import decode
from connector.sink.microbatch.batch_log import BatchLog
from tests.unit.local_sink import local_sink
from tests.unit.sink_plans import append, dead, plan, routing, rows, run, upsert

COLUMNS = {"id": pa.int64(), "kind": pa.string(), "x": pa.int64()}
GOOD = {"bootstrap.servers": "localhost:9092", "topics": "t", "debezium.sink.iceberg.warehouse": "/w"}


def _routed(rule: RouteSettings, *values: Any, known: tuple[str, ...] = ("a.one", "a.two"), **refused: str) -> Any:
    tables = [append(index, COLUMNS) for index, _ in enumerate(known)]
    return decode(run(*values), plan(*tables, routing=routing(rule, *known, **refused)))


def test_dynamic_tables_by_field() -> None:
    """`iceberg.tables.dynamic-enabled`: the value in lower case is the table; order within one is kept."""
    events = [{"id": i, "kind": ("a.One", "A.TWO")[i % 2]} for i in range(6)]
    outcome = _routed(RouteSettings("kind", dynamic=True), *events)
    assert [row["id"] for row in rows(outcome, 0)] == [0, 2, 4]
    assert [row["id"] for row in rows(outcome, 1)] == [1, 3, 5]
    assert not outcome.faults


@pytest.mark.parametrize(
    ("kind", "value", "table"),
    [
        ({"type": "string", "name": "io.debezium.data.Uuid"}, "2C1F9B3A-0000-4000-8000-000000000001", None),
        ({"type": "int64"}, 7, "7"),
        ({"type": "boolean"}, True, "true"),
    ],
    ids=["uuid", "long", "boolean"],
)
def test_a_table_of_each_value(kind: dict[str, Any], value: Any, table: str | None) -> None:
    """Whatever the type of the field; bytes name no table."""
    schema = {"type": "struct", "fields": [{**kind, "field": "tenant"}]}
    rule = RouteSettings("tenant", dynamic=True)
    outcome = decode(run({"schema": schema, "payload": {"tenant": value}}), plan(routing=routing(rule)))
    assert dead(outcome) == {}
    assert [need.table for need in outcome.needs] == [table or str(value).lower()]
    schema["fields"] = [{"type": "bytes", "field": "tenant"}]
    outcome = decode(run({"schema": schema, "payload": {"tenant": "/w=="}}), plan(routing=routing(rule)))
    assert dead(outcome) == {0: "the route field has no value"}


def test_a_table_that_is_not_known_is_a_need() -> None:
    """A table that no batch has met is asked for by name, with the fields of its own events only."""
    events = [{"id": 1, "kind": "a.one"}, {"id": 2, "kind": "b.new", "fresh": 1}, {"id": 3, "kind": "a.one"}]
    outcome = _routed(RouteSettings("kind", dynamic=True), *events)
    (need,) = outcome.needs
    assert (need.table, need.row.names) == ("b.new", ["id", "kind", "fresh"])
    assert [row["id"] for row in rows(outcome, 0)] == [1, 3]


def test_a_new_table_has_the_key_of_its_own_events() -> None:
    """Fields that only keys of other tables' events have, or of records that are no rows, are no keys of it."""
    events = [{"id": 1, "kind": "b.new"}, {"code": "c", "kind": "b.other"}]
    keys = [{"id": 1}, {"code": "c"}]
    outcome = decode(run(*events, keys=keys), plan(routing=routing(RouteSettings("kind", dynamic=True))))
    assert {need.table: need.key for need in outcome.needs} == {
        "b.new": pa.struct([("id", pa.int64())]),
        "b.other": pa.struct([("code", pa.string())]),
    }
    create = {"op": "c", "source": {"connector": "x"}, "before": None, "after": {"id": 1}}
    (need,) = decode(run({"ts_ms": 5}, create, keys=[{"serverName": "s"}, {"id": 1}]), plan()).needs
    assert need.key == pa.struct([("id", pa.int64())])


@pytest.mark.parametrize("value", [None, "", "a..b", ".", "a\0b"])
def test_no_table_is_a_dead_letter(value: str | None) -> None:
    """With dynamic routing an event that names no table is a dead letter, and the others go on."""
    outcome = _routed(RouteSettings("kind", dynamic=True), {"id": 1, "kind": value}, {"id": 2, "kind": "a.two"})
    assert list(dead(outcome)) == [0]
    assert [row["id"] for row in rows(outcome, 1)] == [2]


def test_events_without_the_route_field_are_dead_letters() -> None:
    """A field that no event has routes nothing."""
    assert list(dead(_routed(RouteSettings("nope", dynamic=True), {"id": 1}, {"id": 2}))) == [0, 1]


def test_unknown_table_with_auto_create_off() -> None:
    """Row "resolved table does not exist": the event goes to the dead letters with the reason."""
    refused = {"b.none": "table b.none does not exist"}
    outcome = _routed(
        RouteSettings("kind", dynamic=True), {"id": 1, "kind": "b.none"}, {"id": 2, "kind": "a.one"}, **refused
    )
    assert dead(outcome) == {0: "table b.none does not exist"}


def test_tables_by_regular_expression() -> None:
    """`iceberg.table.<t>.route-regex`: an event goes to every table whose expression fits all of the field's value."""
    rule = RouteSettings("kind", (("a.one", "x.*"), ("a.two", ".*y")))
    outcome = _routed(rule, *({"id": i, "kind": kind} for i, kind in enumerate(["x", "xy", "y", "z", "axb", None])))
    assert [row["id"] for row in rows(outcome, 0)] == [0, 1]
    assert [row["id"] for row in rows(outcome, 1)] == [1, 2]
    assert (outcome.metrics.ignored, outcome.faults) == (3, ())


def test_events_without_the_field_of_listed_tables_are_told_once() -> None:
    """They go to no table, as those whose value no expression fits; nobody would see that the name is wrong."""
    rule = (("a.one", "x.*"),)
    outcome = _routed(RouteSettings("nope", rule), {"id": 1, "kind": "x"}, {"id": 2, "kind": "y"})
    assert (outcome.metrics.ignored, outcome.metrics.unrouted) == (2, {"t"})
    found = _routed(RouteSettings("kind", rule), {"id": 1, "kind": None}, {"id": 2, "kind": "y"}).metrics
    assert (found.ignored, found.unrouted) == (2, frozenset())
    log = BatchLog()
    with capture_logs() as logs:
        for topics in ({"t"}, {"t", "u"}, {"u"}):
            log.log_outcome(TaskMetrics(unrouted=frozenset(topics)), ())
    assert [entry["topics"] for entry in logs] == [["t"], ["u"]]
    assert {entry["log_level"] for entry in logs} == {"warning"}


def test_every_table_of_the_list() -> None:
    """`iceberg.tables` without a route field: every event goes to every table."""
    outcome = _routed(RouteSettings(None, (("a.one", None), ("a.two", None))), {"id": 1}, {"id": 2})
    assert [row["id"] for row in rows(outcome, 0)] == [row["id"] for row in rows(outcome, 1)] == [1, 2]


def test_template_of_fields() -> None:
    """`collection.name.format`: topic, fields of the envelope and literals make the name."""
    envelope = {
        "before": None,
        "after": {"id": 1, "x": 2},
        "source": {"db": "d", "table": "Orders", "schema": None, "ts_ms": 1},
        "op": "c",
    }
    rule = RouteSettings(dynamic=True, template="lake.${source.schema|source.db}_${source.table}_${topic}")
    (need,) = _routed(rule, envelope).needs
    assert need.table == "lake.d_Orders_t"


def test_a_delete_is_routed_by_its_row() -> None:
    """A delete goes to the table that its fields name, with its key."""
    table = upsert(0, COLUMNS, ("id",))
    made = plan(table, routing=routing(RouteSettings("kind", dynamic=True), "a.one"))
    outcome = decode(run({"id": 1, "kind": "a.one", "__deleted": "true"}, keys=[{"id": 1}]), made)
    assert outcome.needs or [bool(gone) for part in outcome.parts for gone in part.deleted] == [True]


@pytest.mark.parametrize("framed", [False, True], ids=["bare", "with schema"])
@pytest.mark.parametrize("field", ["source.table", "iceberg${source.schema}.${source.table}", "iodebeziumtable"])
def test_cloud_events_are_routed_as_envelopes_are(field: str, framed: bool) -> None:
    """Their attributes are the fields of the source, by either name; `after` of a delete is the row that it had."""
    told = {"id": "1", "source": "/debezium/postgresql/p", "specversion": "1.0", "type": "DataChangeEvent"}
    image = {"type": "struct", "optional": True, "fields": [{"field": "id", "type": "int64"}]}
    schema = {"type": "struct", "fields": [{**image, "field": side} for side in ("before", "after")]}
    events = []
    for key, (op, side, table) in enumerate([("c", "after", "one"), ("u", "after", "two"), ("d", "before", "one")]):
        images = {"before": None, "after": None, side: {"id": key}}
        data = {"schema": schema, "payload": images} if framed else images
        own = {"iodebeziumop": op, "iodebeziumschema": "s", "iodebeziumtable": table, "iodebeziumtsms": str(key)}
        events.append({**told, **own, "data": data})
    template = "$" in field
    rule = RouteSettings(None if template else field, dynamic=True, template=field if template else None)
    known = ("icebergs.one", "icebergs.two") if template else ("one", "two")
    for one in (rule, RouteSettings("after.id", tuple(zip(known, ("[02]", "1"), strict=True)))):
        tables = [append(index, {"id": pa.int64(), "__deleted": pa.string()}) for index in (0, 1)]
        outcome = decode(run(*events), plan(*tables, routing=routing(one, *known)))
        assert (dead(outcome), outcome.needs, outcome.metrics.ignored) == ({}, (), 0)
        assert [[row["id"] for row in rows(outcome, index)] for index in (0, 1)] == [[0, 2], [1]]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"iceberg.tables.dynamic-enabled": "true"}, "route-field"),
        ({"iceberg.tables.route-field": "x"}, "no effect alone"),
        ({"iceberg.tables": "a.b", "iceberg.tables.route-field": "x"}, "route-regex"),
        (
            {
                "iceberg.tables": "a.b,a.c,a.d",
                "iceberg.tables.route-field": "x",
                "iceberg.table.a.b.route-regex": "x",
            },
            "no event goes to a.c, a.d without a route-regex",
        ),
        ({"iceberg.tables": "a.b", "iceberg.table.a.b.route-regex": "x"}, "no effect without a field"),
        ({"iceberg.table.a.b.route-regex": "x"}, "iceberg.tables has no such table"),
        (
            {
                "iceberg.tables": "a.b",
                "iceberg.tables.route-field": "x",
                "iceberg.table.a.b.route-regex": "x",
                "iceberg.table.a.bb.route-regex": "y",
            },
            "iceberg.tables has no such table",
        ),
        ({"collection.name.format": "fixed"}, "names no field"),
        ({"iceberg.tables": "a.b", "collection.name.format": "${topic}"}, "keep one"),
        ({"iceberg.tables": "b,default.b"}, "b and default.b are one table"),
        ({"iceberg.table.a.b.route-regex": "("}, "regular expression"),
        (
            {
                "iceberg.tables": "b",
                "iceberg.tables.route-field": "x",
                "iceberg.table.b.route-regex": "x",
                "iceberg.table.default.b.route-regex": "y",
            },
            "b has another expression too",
        ),
        ({"iceberg.table.a.b.colour": "red"}, "not a known key"),
        ({"iceberg.hadoop-conf-dir": "/etc"}, "not supported"),
        (
            {"transforms": "k", "transforms.k.type": "org.apache.iceberg.connect.transforms.KafkaMetadataTransform"},
            "transform",
        ),
        ({"schema.columns": "id long", "topics": "a,b"}, "one table"),
        ({"schema.columns": "id long", "iceberg.tables": "a.b,a.c"}, "one table"),
        ({"table.location": "/x", "collection.name.format": "${source.table}"}, "one table"),
        ({"schema.columns": "id bigint"}, "type that Iceberg"),
        ({"schema.columns": "id"}, "list of columns"),
        ({"schema.columns": "id long, id string"}, "twice"),
        ({"schema.columns": "d decimal(3,4)"}, "type that Iceberg"),
        ({"schema.columns": "s struct<a: int, a: long>"}, "twice"),
        ({"schema.columns": "s struct<a int>"}, "struct that cannot be read"),
        ({"schema.columns": "m map<string>"}, "map that cannot be read"),
        ({"primary.key.mode": "kafka"}, "not supported"),
        ({"primary.key.mode": "record_value"}, "primary.key.fields"),
        ({"primary.key.mode": "none", "iceberg.tables.default-id-columns": "id"}, "keep one"),
        ({"primary.key.mode": "record_key", "iceberg.tables.default-id-columns": "id"}, "keep one"),
        ({"primary.key.mode": "none", "iceberg.table.a.b.id-columns": "id"}, "keep one"),
        ({"debezium.sink.iceberg.table-prefix": "a.b"}, "namespace"),
    ],
)
def test_settings_that_contradict_are_refused(given: dict[str, str], says: str) -> None:
    """Half a route, or a peer's setting that is not supported, is refused by name, never ignored."""
    with pytest.raises(ConfigError, match=says) as told:
        load([], GOOD | given, {})
    assert any(key in str(fault) for fault in told.value.faults for key in given)


@pytest.mark.parametrize("more", [{}, {"iceberg.tables": "a.b"}])
def test_an_empty_expression_is_none(more: dict[str, str]) -> None:
    """A file that is made from a template has keys without a value: they are not given, as any other."""
    assert load([], GOOD | more | {"iceberg.table.a.b.route-regex": ""}, {}) == load([], GOOD | more, {})
    given = {"iceberg.tables": "c", "iceberg.tables.route-field": "x", "iceberg.table.c.route-regex": ""}
    with pytest.raises(ConfigError, match="no event goes to c without a route-regex"):
        load([], GOOD | given, {})


def test_key_columns_by_either_name_are_of_the_value() -> None:
    """`default-id-columns` says all that `primary.key.mode=record_value` asks for."""
    given = {"primary.key.mode": "record_value", "iceberg.tables.default-id-columns": "id"}
    keys = load([], GOOD | given, {}).table.keys
    assert (keys.mode, keys.fields) == ("record_value", ("id",))


@pytest.mark.parametrize("second", [COLUMNS, {**COLUMNS, "y": pa.string()}])
def test_dropped_fields_are_told_of_the_tables_whose_events_had_them(second: dict[str, pa.DataType]) -> None:
    """With allow-field-addition=false a field is no unknown one of tables without events that have it, alike or not."""
    values = [{"id": 1, "kind": "a.one", "new": 5}, {"id": 2, "kind": "a.two", "old": 6}]
    routes = routing(RouteSettings("kind", dynamic=True), "a.one", "a.two")
    outcome = decode(run(*values), plan(append(0, COLUMNS), append(1, second), routing=routes, evolve=False))
    assert outcome.metrics.drift == {(0, "new"), (1, "old")}


@pytest.mark.parametrize("setting", [{"iceberg.tables.route-field": "kind"}, {"collection.name.format": "${kind}"}])
def test_a_table_has_one_name_with_its_namespace_or_without(setting: dict[str, str]) -> None:
    """What two values name is one table, which a batch commits to once."""
    given = {"debezium.sink.iceberg.table-namespace": "a", **setting}
    given |= {"iceberg.tables.dynamic-enabled": "true"} if "iceberg.tables.route-field" in setting else {}
    rule = load([], GOOD | given, {}).table.routes
    assert rule is not None
    events = [{"id": i, "kind": ("a.one", "one", "b.one")[i % 3]} for i in range(6)]
    outcome = _routed(rule, *events, known=("one", "b.one"))
    assert sorted(row["id"] for row in rows(outcome, 0)) == [0, 1, 3, 4]
    assert [row["id"] for row in rows(outcome, 1)] == [2, 5]


def test_the_expression_of_a_table_may_have_its_name_with_its_namespace_or_without() -> None:
    """However the table is listed: an expression that was not found left the table without events."""
    given = {"debezium.sink.iceberg.table-namespace": "a", "iceberg.tables": "a.one,two,b.three"}
    given |= {"iceberg.tables.route-field": "kind", "iceberg.table.one.route-regex": "1"}
    given |= {"iceberg.table.a.two.route-regex": "2", "iceberg.table.b.three.route-regex": "3"}
    rule = load([], GOOD | given, {}).table.routes
    assert rule is not None and rule.tables == (("one", "1"), ("two", "2"), ("b.three", "3"))


def test_listed_tables_have_one_name_each() -> None:
    """The sink's own namespace is left out of them; indexes have no namespace, so nothing is left out of theirs."""
    given = {"debezium.sink.iceberg.table-namespace": "a", "iceberg.tables": "a.one,two,b.one"}
    rule = load([], GOOD | given, {}).table.routes
    assert rule is not None and [name for name, _ in rule.tables] == ["one", "two", "b.one"]
    search = {"debezium.sink.type": "opensearch", "connection.url": "http://h:1", "collection.name.format": "${kind}"}
    indexes = load([], GOOD | search, {}).table.routes
    assert indexes is not None and indexes.name_table("default.one") == "default.one"


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside others"])
@pytest.mark.parametrize(
    "settings",
    [
        ["iceberg.tables.dynamic-enabled=true", "iceberg.tables.route-field=after.region"],
        ["collection.name.format=a.${after.region}"],
        ["iceberg.tables=a.b", "iceberg.tables.route-field=after.region", "iceberg.table.a.b.route-regex=.*b"],
    ],
    ids=["dynamic", "template", "listed"],
)
def test_a_delete_has_in_after_what_its_row_had(tmp_path: Path, settings: list[str], alone: bool) -> None:
    """It goes to the table that its row went to, by the row before; without one it names no table."""
    value = "b" if "collection" in settings[0] else "a.b"
    source = {"connector": "postgresql", "db": "d", "schema": "s", "table": "t"}

    def event(op: str, place: int, key: int, side: str, **row: str | None) -> tuple[Any, bytes, bytes]:
        images = {"before": None, "after": None, side: {"id": key, **row}}
        told = {**images, "op": op, "source": {**source, "ts_ms": place, "lsn": place}}
        return ("t", 0), json.dumps({"id": key}).encode(), json.dumps(told).encode()

    sink = local_sink(tmp_path, ["topics=t", "debezium.sink.iceberg.upsert-keep-deletes=false", *settings])
    gone = event("d", 9, 1, "before", region=value)
    sink.process(*(event("c", key, key, "after", region=value) for key in (1, 2)))
    sink.process(*([gone] if alone else [event("c", 8, 3, "after", region=value), gone]))
    assert [row["id"] for row in sink.rows("a.b")] == ([2] if alone else [2, 3])
    assert sink.letters == []
    sink.process(event("d", 10, 2, "before", region=None))
    assert len(sink.letters) == (0 if "iceberg.tables=a.b" in settings else 1)
