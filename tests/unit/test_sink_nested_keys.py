"""Keys within structs: their names, their columns of rows, the tables that get them, and what cannot be had."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
import pytest

from connector.errors import DataFault
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.types.nested_columns import (
    find_field,
    find_path,
    read_column,
    select_fields,
    set_column,
    set_type,
)
from connector.iceberg.types.schemas.arrow_types import VARIANT_ARROW_TYPE, build_table_schema
from connector.iceberg.types.schemas.row_layout import RowLayout
from connector.opensearch.documents.json_values import to_json_texts
from connector.settings import load
from connector.sink.convert.decoder import decode
from connector.sink.destinations.iceberg.write_modes.registry import WRITE_MODES
from connector.sink.destinations.opensearch.write.key_changes import set_key
from connector.sink.destinations.table_schema import expand_key, find_identifier_fields, with_keys
from connector.sink.model.plan import SchemaChange, TablePlan
from serde.events.changes import DELETED_COLUMN
from tests.unit.sink_plans import dead, plan, rows, run, upsert

SUB = pa.struct([("code", pa.string()), ("note", pa.string())])
CUSTOMER = pa.struct([("id", pa.int64()), ("sub", SUB), ("label", pa.string())])
COLUMNS = {"customer": CUSTOMER, "name": pa.string(), "a.b": pa.int64()}
KEYS = ("customer.id", "customer.sub.code")
KEY: dict[str, Any] = {"id": 1, "sub": {"code": "x"}}
FULL = {"id": 1, "sub": {"code": "x", "note": None}, "label": None}


def _table(**more: Any) -> TablePlan:
    return upsert(0, COLUMNS, KEYS, **more)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("name", ("name",)),
        ("customer.sub.code", ("customer", "sub", "code")),
        ("customer", ("customer",)),
        ("a.b", ("a.b",)),
        ("a", None),
        ("customer.sub.no", None),
        ("name.x", None),
    ],
)
def test_a_name_is_a_column_or_a_path(name: str, path: tuple[str, ...] | None) -> None:
    """A column of that very name comes first, dots or not; then fields within structs; then nothing."""
    assert find_path(pa.schema(list(COLUMNS.items())), name) == path


def test_dots_in_names_of_struct_fields() -> None:
    """A field whose own name has a dot is found where one without would be looked for."""
    kind = pa.struct([("b.c", pa.struct([("d", pa.int64())]))])
    assert find_path([pa.field("a", kind)], "a.b.c.d") == ("a", "b.c", "d")


def test_a_field_of_a_struct_is_null_where_the_struct_is() -> None:
    """Nulls of the structs around count, slices are honoured, and a column of the top level is the very array."""
    values = [{"customer": KEY, "name": "n"}, {"customer": None}, {"customer": {"id": 3, "sub": None}}]
    batch = pa.RecordBatch.from_pylist(values, pa.schema([("customer", CUSTOMER), ("name", pa.string())]))
    assert read_column(batch, "customer.sub.code").to_pylist() == ["x", None, None]
    assert read_column(batch.slice(1), "customer.id").to_pylist() == [None, 3]
    assert read_column(batch, "name").equals(batch.column(1))
    with pytest.raises(KeyError):
        read_column(batch, "customer.no")


def test_a_value_makes_the_structs_around_it() -> None:
    """A key put into a null struct gives a struct with that key; what is beside it stays, and null stays null."""
    columns = {"customer": pa.array([{"id": 9, "sub": None, "label": "l"}, None, None], CUSTOMER)}
    set_column(columns, ("customer", "sub", "code"), pa.array(["x", "y", None]))
    assert columns["customer"].to_pylist() == [
        {"id": 9, "sub": {"code": "x", "note": None}, "label": "l"},
        {"id": None, "sub": {"code": "y", "note": None}, "label": None},
        None,
    ]


def test_identifier_fields_and_configured_ones_are_keys() -> None:
    """Keys are in the schema's order, those within structs dotted; a configured struct is all that is in it."""
    found = _table().layout
    assert (found.keys, found.key_columns) == (KEYS, {"customer"})
    assert found.key_paths == tuple(tuple(name.split(".")) for name in KEYS)
    assert [field.type for field in found.key_fields] == [pa.int64(), pa.string()]
    schema = found.schema
    assert [schema.find_field(name).required for name in ("customer", "customer.sub", *KEYS)] == [True] * 4
    assert not schema.find_field("customer.label").required
    configured = RowLayout("t", found.schema_json, ("name", "customer.sub"))
    assert configured.keys == ("customer.sub.code", "customer.sub.note", "name")
    document = orjson.loads(found.schema_json)
    (kept,) = select_fields(document["fields"], found.key_paths)
    assert [field["name"] for field in kept["type"]["fields"]] == ["id", "sub"]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ({"customer": KEY}, None),
        ({"customer": {"id": 1.0, "sub": {"code": "x"}}}, None),
        ({"customer.id": 1, "customer.sub.code": "x"}, None),
        ({"customer": {"id": 1, "sub": {}}}, "no customer.sub.code, an identifier field of d.t"),
        ({"id": 1, "code": "x"}, "no customer.id, an identifier field of d.t"),
        ({"customer": {"id": 1.5, "sub": {"code": "x"}}}, "not whole"),
    ],
)
def test_record_keys_tell_keys_within_structs(key: Any, reason: str | None) -> None:
    """By structs, or by fields with dotted names as the source publishes them; the row's structs get the values, those
    of a tombstone too."""
    outcome = decode(run({"name": "n"}, None, keys=[key, key]), plan(_table()))
    if reason is None:
        assert [(r["customer"], r["name"]) for r in rows(outcome)] == [(FULL, "n"), (FULL, None)]
    else:
        assert set(dead(outcome)) == {0, 1}
        assert all(reason in told for told in dead(outcome).values())


def test_a_single_value_is_the_only_key() -> None:
    """A record key that is one value means the one key that the table has, within a struct too."""
    outcome = decode(run({"name": "n"}, keys=[7]), plan(upsert(0, COLUMNS, ("customer.id",))))
    assert [r["customer"]["id"] for r in rows(outcome)] == [7]


def test_values_tell_keys_within_structs() -> None:
    """A row without a value for one is a dead letter, a delete as well; what is beside the key may be missing."""
    table = upsert(0, {**COLUMNS, DELETED_COLUMN: pa.string()}, KEYS, keys_from="value")
    gone = {"customer": {"id": 1}, "__deleted": "true"}
    outcome = decode(run({"customer": KEY, "name": "n"}, {"name": "n"}, gone), plan(table))
    assert [r["customer"] for r in rows(outcome)] == [FULL]
    assert "column customer" in dead(outcome)[1]
    assert "customer.sub.code is a key" in dead(outcome)[2]


def test_what_is_required_within_structs_is_looked_for() -> None:
    """A row that lacks what a struct of it requires is a dead letter; one that goes needs its key only."""
    kind = pa.struct([pa.field("id", pa.int64()), pa.field("label", pa.string(), nullable=False)])
    table = upsert(0, {"customer": kind, DELETED_COLUMN: pa.string()}, ("customer.id",))
    key = {"customer": {"id": 1}}
    values: list[Any] = [{"customer": {"label": "l"}}, key, {**key, "__deleted": "true"}]
    outcome = decode(run(*values, keys=[key] * 3), plan(table))
    assert set(dead(outcome)) == {1}
    assert "customer.label is required" in dead(outcome)[1]


def _need(row: dict[str, pa.DataType], key: dict[str, pa.DataType]) -> SchemaChange:
    return SchemaChange("t", pa.struct(list(row.items())), pa.struct(list(key.items())), {})


def test_a_record_key_with_a_struct_makes_identifier_fields() -> None:
    """The struct's fields are the key: required in the table, in the key's types, beside what else the rows have."""
    key = {"id": pa.struct([("a", pa.int32()), ("b", pa.string())]), "n": pa.int64()}
    need = _need({"v": pa.string(), "id": pa.struct([("b", pa.string()), ("more", pa.string())])}, key)
    rule = load([], {"bootstrap.servers": "x:1", "topics": "t", "debezium.sink.iceberg.warehouse": "/w"}, {}).table
    keys = find_identifier_fields([need], rule)
    assert keys == ("id.a", "id.b", "n")
    columns = with_keys(pa.schema(list(need.row)), [need], keys)
    inside = pa.struct([("a", pa.int32()), ("b", pa.string()), ("more", pa.string())])
    assert list(columns) == [pa.field("n", pa.int64()), pa.field("v", pa.string()), pa.field("id", inside)]
    schema = build_table_schema(columns, keys, frozenset(), nanoseconds=False)
    assert {schema.find_column_name(i) for i in schema.identifier_field_ids} == {"id.a", "id.b", "n"}
    assert schema.find_field("id").required and not schema.find_field("id.more").required


@pytest.mark.parametrize(
    "row",
    [{"id": pa.string()}, {"id": pa.struct([("a", pa.list_(pa.int64()))])}, {"id": pa.struct([("a", pa.float64())])}],
)
def test_what_identifies_nothing_makes_no_table(row: dict[str, pa.DataType]) -> None:
    """Lists, floating point, and a column that is no struct where the key has one are refused."""
    kind = pa.struct([("a", pa.int64())]) if row["id"] == pa.string() else row["id"]
    with pytest.raises(DataFault, match=r"id\.a"):
        with_keys(pa.schema(list(row.items())), [_need(row, {"id": kind})], ("id.a",))


def test_configured_keys_are_looked_for() -> None:
    """A struct stands for its fields, once; names that are none of the fields are told."""
    fields = [pa.field(name, kind) for name, kind in COLUMNS.items()]
    assert expand_key(fields, ["customer.sub", "customer.sub.code", "a.b"]) == (
        "customer.sub.code",
        "customer.sub.note",
        "a.b",
    )
    with pytest.raises(KeyError) as missing:
        expand_key(fields, ["customer.no", "name", "x"])
    assert missing.value.args == ("customer.no", "x")


@pytest.mark.parametrize(
    ("mode", "more", "says"),
    [
        ("position-delete", {}, None),
        ("copy-on-write", {}, None),
        ("equality-delete", {}, "write-mode"),
        ("position-delete", {"at": pa.struct([("t", pa.time64("us"))])}, "times"),
    ],
)
def test_modes_that_such_keys_go_with(mode: Any, more: dict[str, pa.DataType], says: str | None) -> None:
    """Rows are found by reading; equality deletes are not written, and times keep Spark from reading structs."""
    columns = pa.schema(list({**COLUMNS, **more}.items()))
    fault = WRITE_MODES[mode].find_key_fault(columns, KEYS)
    assert fault is None if says is None else says in str(fault) and "customer.id" in str(fault)
    assert WRITE_MODES[mode].find_key_fault(columns, ("name", "a.b")) is None


@pytest.mark.parametrize("kind", [pa.binary(4), pa.float32(), pa.float64()], ids=str)
def test_keys_that_equality_deletes_do_not_hit(kind: pa.DataType) -> None:
    """Bytes of fixed length and floating point are refused where rows go by equality deletes, with the way out."""
    columns = pa.schema([("id", kind), ("u", pa.uuid()), ("b", pa.binary())])
    assert "write-mode" in str(WRITE_MODES["equality-delete"].find_key_fault(columns, ("id", "u")))
    assert WRITE_MODES["position-delete"].find_key_fault(columns, ("id", "u")) is None
    assert WRITE_MODES["equality-delete"].find_key_fault(columns, ("u", "b")) is None


@pytest.mark.parametrize("mode", ["equality-delete", "position-delete", "copy-on-write"])
@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64()), VARIANT_ARROW_TYPE], ids=str)
def test_what_has_parts_is_no_key(kind: pa.DataType, mode: Any) -> None:
    """Lists, maps and variants tell no rows apart in any mode, on the top level too."""
    columns = pa.schema([("id", pa.int64()), ("tags", kind)])
    assert "(tags:" in str(WRITE_MODES[mode].find_key_fault(columns, ("id", "tags")))
    assert WRITE_MODES[mode].find_key_fault(columns, ("id",)) is None


def test_ranges_of_such_keys_are_told_to_iceberg() -> None:
    """The filter names the field by its path."""
    keys = pa.record_batch({"customer.id": pa.array([1, 1])})
    told = orjson.loads(KeyRanges.of(keys).filter(_table().layout.schema) or "")
    assert told == {"type": "eq", "term": "customer.id", "value": 1}


def test_a_document_that_moves_gets_its_new_key() -> None:
    """Within a struct only the key changes; what else the document has there stays."""
    outcome = decode(run({"name": "n"}, keys=[{"customer": KEY}]), plan(_table()))
    texts = {"customer": to_json_texts(pa.array([{"id": 5, "sub": {"note": "kept"}, "label": "l"}], CUSTOMER))}
    set_key(texts, outcome.parts[0], _table())
    expected = {"id": 1, "sub": {"code": "x", "note": "kept"}, "label": "l"}
    assert orjson.loads(texts["customer"][0].as_py()) == expected


def test_types_are_put_at_paths() -> None:
    """What is missing of a path comes first; what is there keeps its place."""
    fields = set_type(set_type([pa.field("v", pa.int64())], ("s", "b"), pa.string()), ("s", "a"), pa.int64())
    assert fields == [pa.field("s", pa.struct([("a", pa.int64()), ("b", pa.string())])), pa.field("v", pa.int64())]
    assert find_field(pa.schema(fields), "s.b").name == "s.b"


def test_settings_take_dotted_names() -> None:
    """What a dotted name is, only the table tells."""
    given = {"bootstrap.servers": "x:1", "topics": "t", "debezium.sink.iceberg.warehouse": "/w"}
    given |= {"iceberg.tables.default-id-columns": "a.b", "iceberg.table.x.y.id-columns": "a.b.c,d"}
    keys = load([], given, {}).table.keys
    assert (keys.of("t"), keys.of("x.y")) == (("a.b",), ("a.b.c", "d"))
