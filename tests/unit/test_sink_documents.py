"""MongoDB's events -> rows: the examples of Debezium's MongoDB page, by section, and what they mean for tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pytest

from connector.settings import EventSettings
from connector.sink.convert.decoder import decode
from connector.sink.fold.fold import fold
from connector.sink.fold.values.row_lives import find_needed_rows
from connector.sink.fold.values.unavailable_values import fill_in_batch, mark_unavailable
from serde.events.images.document_patches import PATCH_MARK, apply_patch, format_patch
from serde.events.images.extended_json import format_id, parse_id, read_plain
from tests.unit import sink_plans
from tests.unit.folds import select_rows_to_keep
from tests.unit.json_messages import framed

# MongoDB page, "create events", "update events", "delete events".
SOURCE = {
    "version": "3.5.0.Final",
    "connector": "mongodb",
    "name": "fulfillment",
    "ts_ms": 1558965508000,
    "ts_us": 1558965508000000,
    "ts_ns": 1558965508000000000,
    "snapshot": "false",
    "db": "inventory",
    "rs": "rs0",
    "collection": "customers",
    "ord": 31,
}
AFTER = (
    '{"_id" : {"$numberLong" : "1004"},"first_name" : "Anne","last_name" : "Kretchmar","email" : "annek@noanswer.org"}'
)
CREATE = {"after": AFTER, "source": SOURCE, "op": "c", "ts_ms": 1558965515240}
LATER = AFTER.replace('"Anne"', '"Anne Marie"')
CHANGED = {"removedFields": None, "updatedFields": '{"first_name": "Anne Marie"}', "truncatedArrays": None}
FULL_UPDATE = {**CREATE, "op": "u", "after": LATER, "updateDescription": CHANGED}
PATCH_ONLY = {**CREATE, "op": "u", "after": None, "updateDescription": CHANGED}
DELETE = {**CREATE, "op": "d", "after": None, "before": None}
KEY = {"id": "1004"}
ROW = {"_id": "1004", "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
TEXTS = EventSettings("auto", "auto", (), "__", documents_as="text")
_JSON = "io.debezium.data.Json"


def with_schema(payload: dict[str, Any]) -> bytes:
    """The event as JsonConverter writes it with its schema block."""
    words = [{"type": "string", "field": n, "optional": True} for n in ("name", "connector", "db", "rs", "collection")]
    numbers = [{"type": "int64", "field": n} for n in ("ts_ms", "ts_us", "ts_ns")]
    source = [*words, *numbers, {"type": "int32", "field": "ord"}]
    removed = {"type": "array", "items": {"type": "string"}, "optional": True, "field": "removedFields"}
    sizes = [{"type": "string", "field": "field"}, {"type": "int32", "field": "size"}]
    arrays = {
        "type": "array",
        "items": {"type": "struct", "fields": sizes},
        "optional": True,
        "field": "truncatedArrays",
    }
    changes = [removed, {"type": "string", "name": _JSON, "optional": True, "field": "updatedFields"}, arrays]
    fields: list[Any] = [
        {"type": "string", "name": _JSON, "optional": True, "field": "before"},
        {"type": "string", "name": _JSON, "optional": True, "field": "after"},
        {"type": "struct", "optional": True, "fields": changes, "field": "updateDescription"},
        {"type": "struct", "fields": source, "name": "io.debezium.connector.mongo.Source", "field": "source"},
        {"type": "string", "optional": True, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]
    return framed(fields, payload, "dbserver1.inventory.customers.Envelope")


def columns_table(**more: Any) -> Any:
    types = dict.fromkeys(ROW, pa.string())
    return sink_plans.upsert(0, {**types, "__deleted": pa.string()}, ("_id",), **more)


@pytest.mark.parametrize("written", [with_schema, dict], ids=["schema", "bare"])
def test_documents_become_columns(written: Any) -> None:
    """Create, full update and delete of the documentation end as rows by `_id`, whatever the format."""
    run = sink_plans.run(*map(written, (CREATE, FULL_UPDATE, DELETE)), None, keys=[KEY] * 4)
    outcome = decode(run, sink_plans.plan(columns_table()))
    assert sink_plans.dead(outcome) == {}
    found = sink_plans.rows(outcome)
    assert found[0] == {**ROW, "__deleted": "false"}
    assert found[1]["first_name"] == "Anne Marie"
    assert [row["_id"] for row in found] == ["1004"] * 4
    gone = {int(o): bool(d) for p in outcome.parts for o, d in zip(p.order.offset, p.deleted, strict=True)}
    assert gone == {100: False, 101: False, 102: True, 103: True}


def cloud_event(event: dict[str, Any]) -> dict[str, Any]:
    """The event as CloudEventsConverter writes it: attributes are texts, images stay texts in `data`."""
    source = {f"iodebezium{name.replace('_', '')}": str(value) for name, value in event["source"].items()}
    images = {name: event.get(name) for name in ("before", "after", "updateDescription")}
    about = {"id": "name:fulfillment;ts:1", "source": "/debezium/mongodb/fulfillment", "specversion": "1.0"}
    about |= {"type": "io.debezium.connector.mongodb.DataChangeEvent", "datacontenttype": "application/json"}
    return {**about, **source, "iodebeziumop": event["op"], "data": images}


def test_deletes_of_documents_in_cloud_events_are_keyed_as_those_in_envelopes() -> None:
    """Where no event of a batch has an image, the collection tells documents from rows: a table made then has `_id`."""
    for event in (DELETE, cloud_event(DELETE)):
        (need,) = decode(sink_plans.run(event, keys=[KEY]), sink_plans.plan()).needs
        assert need.key == pa.struct([("_id", pa.string())])


@pytest.mark.parametrize("count", [1, 300])
def test_documents_in_cloud_events_become_columns(count: int) -> None:
    """Whatever is around the images; also where a delete has none, and the collection is the table."""
    events = [*map(cloud_event, (CREATE, FULL_UPDATE, DELETE))] * count
    plan = sink_plans.plan(columns_table(), events=EventSettings("auto", "auto", ("table",), "__"))
    outcome = decode(sink_plans.run(*events, keys=[KEY] * len(events)), plan)
    assert sink_plans.dead(outcome) == {}
    assert {need.row.field("__table").type for need in outcome.needs} == {pa.string()}
    outcome = decode(sink_plans.run(*events, keys=[KEY] * len(events)), sink_plans.plan(columns_table()))
    assert sink_plans.dead(outcome) == {} and not outcome.needs
    found = sink_plans.rows(outcome)
    assert found[0] == {**ROW, "__deleted": "false"} and found[1]["first_name"] == "Anne Marie"
    assert all(place[1] == 1558965508000 for part in outcome.parts for place in part.order.place.tolist())


@pytest.mark.parametrize("written", [with_schema, dict], ids=["schema", "bare"])
def test_a_new_table_is_keyed_by_id(written: Any) -> None:
    """The key is `_id`, the collection is the table, and the types are those of the documents."""
    doc = {"_id": {"$oid": "596e275826f08b2730779e1f"}, "n": {"$numberLong": "5"}, "at": {"$date": 1490000000123}}
    event = {**CREATE, "after": orjson.dumps({**doc, "inner": {"a": [1.5]}, "id": "own"}).decode()}
    run = sink_plans.run(written(event), keys=[{"id": '{"$oid" : "596e275826f08b2730779e1f"}'}])
    events = EventSettings("auto", "auto", ("table", "db"), "__")
    (need,) = decode(run, sink_plans.plan(events=events)).needs
    types = {field.name: field.type for field in need.row}
    assert need.key == pa.struct([("_id", pa.string())])
    assert (types["_id"], types["n"], types["at"]) == (pa.string(), pa.int64(), pa.timestamp("us", "UTC"))
    assert types["inner"] == pa.struct([("a", pa.list_(pa.float64()))])
    table = sink_plans.upsert(0, types, ("_id",))
    (row,) = sink_plans.rows(decode(run, sink_plans.plan(table, events=events)))
    assert row["at"] == datetime(2017, 3, 20, 8, 53, 20, 123000, UTC)
    assert (row["_id"], row["id"], row["__table"]) == ("596e275826f08b2730779e1f", "own", "customers")


def test_an_update_of_changes_only_needs_the_document() -> None:
    """What has no row for it cannot take it, which the dead letter says; with the document before it, it is applied."""
    run = sink_plans.run(PATCH_ONLY, keys=[KEY])
    (reason,) = sink_plans.dead(decode(run, sink_plans.plan(columns_table()))).values()
    assert "change_streams_update_full" in reason and "one row per key" in reason
    run = sink_plans.run({**PATCH_ONLY, "before": AFTER}, keys=[KEY])
    (row,) = sink_plans.rows(decode(run, sink_plans.plan(columns_table())))
    assert row == {**ROW, "first_name": "Anne Marie", "__deleted": "false"}


def test_changes_are_applied_to_the_stored_text() -> None:
    """As text a document takes the changes of the batch in their order; what has no document before waits for it."""
    types = {"_id": pa.string(), "document": pa.string(), "__deleted": pa.string()}
    plan = sink_plans.plan(sink_plans.upsert(0, types, ("_id",)), events=TEXTS)
    more = {"updatedFields": '{"a.b.1": 5, "first_name": "A"}', "removedFields": ["email"], "truncatedArrays": []}
    events = (CREATE, PATCH_ONLY, {**PATCH_ONLY, "updateDescription": more})
    (part,) = decode(sink_plans.run(*map(with_schema, events), keys=[KEY] * 3), plan).parts
    folded = fill_in_batch(fold([part], ("_id",)), ("_id",))
    (text,) = [folded.parts[0].rows.column("document")[int(at)].as_py() for at in folded.winners]
    assert orjson.loads(text) == {
        "_id": "1004",
        "first_name": "A",
        "last_name": "Kretchmar",
        "a": {"b": {"1": 5}},
    }
    assert not mark_unavailable(folded).any()
    whole = folded.parts[0].rows.column("document")[0].as_py()
    (part,) = decode(sink_plans.run(*map(with_schema, events[1:]), keys=[KEY] * 2), plan).parts
    folded = fill_in_batch(fold([part], ("_id",)), ("_id",))
    assert mark_unavailable(folded).all()
    patch = folded.parts[0].rows.column("document")[int(folded.winners[0])].as_py()
    assert patch.startswith(PATCH_MARK)
    assert orjson.loads(apply_patch(whole, patch)) == orjson.loads(text)


def test_arrays_are_cut_and_filled() -> None:
    """Paths go through arrays by number; a cut comes before what is set, a removed item leaves null."""
    patch = format_patch({"a.1.x": 7, "b.3": 1}, ["a.0"], [{"field": "a", "size": 2}])
    made = orjson.loads(apply_patch('{"a":[1,{"x":1},3],"b":[0]}', patch))
    assert made == {"a": [None, {"x": 7}], "b": [0, None, None, 1]}


def test_joined_patches_do_what_each_did() -> None:
    """Patches applied one by one, or joined in any grouping, end in the same document (random, seeded)."""
    dice = np.random.default_rng(20)
    names = ["a", "b", "a.b", "a.c.0", "l.1", "l.2.x"]
    for _ in range(200):
        patches = [
            format_patch(
                {str(n): int(dice.integers(9)) for n in dice.choice(names, 2)},
                [str(n) for n in dice.choice(names, 1)],
                [{"field": "l", "size": int(dice.integers(3))}] if dice.random() < 0.3 else [],
            )
            for _ in range(4)
        ]
        base = '{"_id":"1","l":[1,2,3],"a":{"b":1}}'
        one_by_one = base
        for patch in patches:
            one_by_one = apply_patch(one_by_one, patch)
        joined = apply_patch(apply_patch(patches[0], patches[1]), apply_patch(patches[2], patches[3]))
        assert apply_patch(base, joined) == one_by_one


# MongoDB page, "Change event keys", table "Examples of representing document _id fields in event key payloads".
IDS = ["1234", "12.34", '"1234"', '{"hi" : "kafka", "nums" : [10.0, 100.0, 1000.0]}']
IDS += ['{"$oid" : "596e275826f08b2730779e1f"}', '{"$binary" : "a2Fma2E=", "$type" : "00"}', '"plain"', '"true"']
IDS += ['"596e275826f08b2730779e1f"', "true", "null", '"{}"', '""', '{"$date" : 5}', '{"$uuid" : "x"}']


def test_ids_of_any_type_stay_apart() -> None:
    """Each `_id` has a text of its own, an object id and a plain text the natural one."""
    made = [parse_id(text) for text in IDS]
    assert len(set(made)) == len(IDS)
    assert made[:3] == ["1234", "12.34", '"1234"']
    assert (made[4], made[6]) == ("596e275826f08b2730779e1f", "plain")
    assert format_id({"$numberLong": "1004"}) == parse_id("1004")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ({"$numberLong": "9223372036854775807"}, 2**63 - 1),
        ({"$numberInt": "-5"}, -5),
        ({"$numberDouble": "1.5"}, 1.5),
        ({"$numberDouble": "NaN"}, "NaN"),
        ({"$numberDecimal": "1.10"}, "1.10"),
        ({"$date": -1}, "1969-12-31T23:59:59.999Z"),
        ({"$date": "2017-03-20T08:53:20.123Z"}, "2017-03-20T08:53:20.123Z"),
        ({"$date": {"$numberLong": "0"}}, "1970-01-01T00:00:00.000Z"),
        ({"$binary": "a2Fma2E=", "$type": "00"}, "a2Fma2E="),
        ({"$binary": {"base64": "AAAAAAAAAAAAAAAAAAAABw==", "subType": "04"}}, "00000000-0000-0000-0000-000000000007"),
        ({"$timestamp": {"t": 5, "i": 1}}, {"t": 5, "i": 1}),
        ({"$regularExpression": {"pattern": "^a", "options": "i"}}, "/^a/i"),
        ({"$undefined": True}, None),
        ([{"$oid": "5"}, {"a": {"$minKey": 1}}], ["5", {"a": "MinKey"}]),
        ({"$ref": "c", "$id": {"$oid": "5"}}, {"$ref": "c", "$id": "5"}),
        ({"$numberLong": "x"}, {"$numberLong": "x"}),
    ],
)
def test_extended_json_becomes_plain(value: Any, plain: Any) -> None:
    """Each type of either version of extended JSON has its plain value."""
    assert read_plain(value) == plain


# MongoDB's manual, "Extended JSON (v1)" and "(v2)": strict, canonical, relaxed.
FORMS: dict[str, tuple[Any, Any, Any]] = {
    "a date": ({"$date": 1783101585729}, {"$date": {"$numberLong": "1783101585729"}}, "2026-07-03T17:59:45.729Z"),
    "a whole second": ({"$date": 1783101585000}, {"$date": {"$numberLong": "1783101585000"}}, "2026-07-03T17:59:45Z"),
    "a whole minute": ({"$date": 0}, {"$date": {"$numberLong": "0"}}, "1970-01-01T00:00:00Z"),
    "a long": ({"$numberLong": "5"}, {"$numberLong": "5"}, 5),
    "an integer": (5, {"$numberInt": "5"}, 5),
    "a double": (5.0, {"$numberDouble": "5.0"}, 5.0),
    "no number": ({"$numberDouble": "NaN"}, {"$numberDouble": "NaN"}, {"$numberDouble": "NaN"}),
    "a decimal": ({"$numberDecimal": "1.50"}, {"$numberDecimal": "1.50"}, {"$numberDecimal": "1.50"}),
    "bytes": ({"$binary": "AQI=", "$type": "00"}, *[{"$binary": {"base64": "AQI=", "subType": "00"}}] * 2),
    "a pattern": ({"$regex": "^a", "$options": "i"}, *[{"$regularExpression": {"pattern": "^a", "options": "i"}}] * 2),
    "an id": tuple([{"$oid": "596e275826f08b2730779e1f"}] * 3),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("kind", FORMS)
def test_a_value_is_the_same_in_each_json_serialization_mode(kind: str) -> None:
    """By default documents are strict, and what an update sets relaxed: no column may have one value in two ways."""
    strict, canonical, relaxed = FORMS[kind]
    relaxed = {"$date": relaxed} if "$date" in str(strict) else relaxed
    assert read_plain(strict) == read_plain(canonical) == read_plain(relaxed)


def test_what_is_no_document_is_a_dead_letter() -> None:
    """Text that is no JSON object costs its own event only."""
    run = sink_plans.run(*({**CREATE, "after": text} for text in ("{", "[1]", AFTER)), keys=[KEY] * 3)
    outcome = decode(run, sink_plans.plan(columns_table()))
    assert sorted(sink_plans.dead(outcome)) == [0, 1] and len(sink_plans.rows(outcome)) == 1


def test_documents_end_the_same_however_the_events_are_cut() -> None:
    """Folded in any parts, of several tasks and then together, partial updates end in the document that MongoDB has."""
    dice = np.random.default_rng(2020)
    types = {"_id": pa.string(), "document": pa.string(), "__deleted": pa.string()}
    plan = sink_plans.plan(sink_plans.upsert(0, types, ("_id",)), events=TEXTS)
    for _ in range(30):
        events, truth = _story(dice, 24)
        cuts = sorted(dice.choice(np.arange(1, 24), int(dice.integers(1, 6)), replace=False).tolist())
        folded = []
        for start, stop in zip([0, *cuts], [*cuts, 24], strict=True):
            run = sink_plans.run(
                *(value for _, value in events[start:stop]), keys=[key for key, _ in events[start:stop]]
            )
            parts = decode(attrs.evolve(run, offset=run.offset + start), plan).parts
            some = fill_in_batch(fold(list(parts), ("_id",)), ("_id",))
            folded += select_rows_to_keep(some, ("_id",), find_needed_rows(some, ("_id",)))
        made = fill_in_batch(fold(folded, ("_id",)), ("_id",))
        rows = pa.concat_tables([pa.Table.from_batches([part.rows]) for part in made.parts]).to_pylist()
        deleted = np.concatenate([part.deleted for part in made.parts])
        found = {
            rows[int(image)]["_id"]: orjson.loads(rows[int(image)]["document"])
            for winner, image in zip(made.winners, made.images, strict=True)
            if not deleted[int(winner)]
        }
        assert found == truth


def _story(dice: np.random.Generator, count: int) -> tuple[list[tuple[Any, Any]], dict[str, Any]]:
    """Random creates, partial updates and deletes of three documents, and what is there at the end."""
    truth: dict[str, Any] = {}
    events: list[tuple[Any, Any]] = []
    for now in range(count):
        number = str(int(dice.integers(3)))
        source = {**SOURCE, "ts_ms": 1000 * now, "ts_ns": now * 10**9}
        if number not in truth:
            document = {"_id": {"$numberInt": number}, "n": now, "l": [now]}
            truth[number] = {"_id": number, "n": now, "l": [now]}
            event = {**CREATE, "source": source, "after": orjson.dumps(document).decode()}
        elif dice.random() < 0.2:
            del truth[number]
            event = {**DELETE, "source": source}
        else:
            name = str(dice.choice(["n", "m", "l.1"]))
            told = {"updatedFields": orjson.dumps({name: now}).decode(), "removedFields": ["m"] if name == "n" else []}
            text = apply_patch(
                orjson.dumps(truth[number]).decode(), format_patch({name: now}, told["removedFields"], [])
            )
            truth[number] = orjson.loads(text)
            event = {**PATCH_ONLY, "source": source, "updateDescription": {**told, "truncatedArrays": []}}
        events.append(({"id": number}, event))
    return events, truth


@pytest.mark.parametrize("written", [with_schema, dict], ids=["schema", "bare"])
def test_a_document_may_be_a_variant(written: Any) -> None:
    """With nested values as variants the document is one; on its way it is text, patches included."""
    run = sink_plans.run(written(CREATE), written(PATCH_ONLY), keys=[KEY] * 2)
    (need,) = decode(run, sink_plans.plan(events=TEXTS, variants=True)).needs
    assert need.row.field("document").type == pa.json_()
    types = {"_id": pa.string(), "document": pa.json_(), "__deleted": pa.string()}
    table = sink_plans.upsert(0, types, ("_id",))
    outcome = decode(run, sink_plans.plan(table, events=TEXTS, variants=True))
    assert sink_plans.dead(outcome) == {} and not outcome.needs
    whole, patch = (row["document"] for row in sink_plans.rows(outcome))
    assert orjson.loads(apply_patch(whole, patch)) == {**ROW, "first_name": "Anne Marie"}
