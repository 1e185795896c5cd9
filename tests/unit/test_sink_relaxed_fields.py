"""Required fields within structs, lists and maps whose source does not require them any more -> optional ones."""

from __future__ import annotations

from typing import Any

import attrs
import pyarrow as pa
import pytest

from connector.iceberg.types.required_values import find_missing_values, requires_within
from connector.iceberg.types.schemas.arrow_types import build_table_schema, to_arrow_schema
from connector.iceberg.types.schemas.schema_evolution import make_optional
from connector.settings import EventSettings
from connector.sink.convert.columns.column_renames import rename_shape
from connector.sink.convert.decoded_records import DecodedRecords
from connector.sink.convert.decoder import decode
from connector.sink.model.plan import TablePlan
from serde.events.changes import DELETED_COLUMN
from tests.unit.sink_plans import append, dead, plan, rows, run, upsert


def _needed(kind: pa.DataType = pa.int64()) -> pa.StructType:  # noqa: B008 - a type is a value
    return pa.struct([pa.field("x", kind, nullable=False), pa.field("y", pa.int64())])


KINDS: dict[str, tuple[pa.DataType, tuple[str, ...]]] = {
    "struct": (_needed(), ("v", "x")),
    "struct in a struct": (pa.struct([("s", _needed())]), ("v", "s", "x")),
    "struct that is required": (_needed(_needed()), ("v", "x")),
    "list": (pa.list_(_needed()), ("v", "element", "x")),
    "items of a list": (pa.list_(pa.field("element", pa.int64(), nullable=False)), ("v", "element")),
    "list of lists": (pa.list_(pa.list_(_needed())), ("v", "element", "element", "x")),
    "map": (pa.map_(pa.string(), _needed()), ("v", "value", "x")),
    "values of a map": (pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)), ("v", "value")),
    "list in a struct": (pa.struct([("l", pa.list_(_needed()))]), ("v", "l", "element", "x")),
}
THERE: dict[str, tuple[Any, Any]] = {
    "struct": ({"x": 1, "y": 2}, {"x": None, "y": 2}),
    "struct in a struct": ({"s": {"x": 1, "y": 2}}, {"s": {"x": None, "y": 2}}),
    "struct that is required": ({"x": {"x": 1, "y": 2}, "y": 3}, {"x": None, "y": 3}),
    "list": ([{"x": 1, "y": 2}], [{"x": 1, "y": 2}, {"x": None, "y": 2}]),
    "items of a list": ([1], [1, None]),
    "list of lists": ([[{"x": 1, "y": 2}], None, []], [[], [{"x": None, "y": 2}]]),
    "map": ({"k": {"x": 1, "y": 2}}, {"k": {"x": 1, "y": 2}, "l": {"x": None, "y": 2}}),
    "values of a map": ({"k": 1}, {"k": None}),
    "list in a struct": ({"l": [{"x": 1, "y": 2}]}, {"l": [{"x": None, "y": 2}]}),
}
"""A value that has everything, and one that lacks what is required."""


def _schema(kind: pa.DataType, optional: frozenset[str], path: str) -> dict[str, Any]:
    """Connect's schema of a type; what is in `optional` may be null."""
    told: dict[str, Any] = {"optional": path in optional}
    if pa.types.is_struct(kind):
        fields = [{"field": f.name, **_schema(f.type, optional, f"{path}.{f.name}")} for f in kind]
        return {"type": "struct", "fields": fields, **told}
    if pa.types.is_list(kind):
        return {"type": "array", "items": _schema(kind.value_type, optional, f"{path}.element"), **told}
    if pa.types.is_map(kind):
        values = _schema(kind.item_type, optional, f"{path}.value")
        return {"type": "map", "keys": {"type": "string"}, "values": values, **told}
    return {"type": {"int64": "int64", "string": "string"}[str(kind)], **told}


def _event(kind: pa.DataType, value: Any, *optional: str, name: str = "v", number: int = 1) -> dict[str, Any]:
    """A record's value with a schema block: `id`, and a column of a type."""
    row = pa.struct([("id", pa.int64()), (name, kind)])
    schema = _schema(row, frozenset({f"r.{name}", *(f"r.{path}" for path in optional)}), "r")
    return {"schema": schema, "payload": {"id": number, name: value}}


def _events(table: TablePlan, *values: Any, evolve: bool = True, **more: Any) -> DecodedRecords:
    return decode(run(*values, **more), plan(table, evolve=evolve))


@pytest.mark.parametrize("name", KINDS)
def test_the_table_does_not_require_what_the_source_does_not_any_more(name: str) -> None:
    """A row lacks it, and its schema allows that: the field becomes optional, and then the rows are written."""
    kind, path = KINDS[name]
    optional, table = ".".join(path), append(0, {"id": pa.int64(), "v": kind})
    good, lacking = (_event(kind, value, optional) for value in THERE[name])
    assert not _events(table, good).needs, "as long as no row lacks it, nothing is changed"
    outcome = _events(table, good, lacking)
    assert [need.relaxed for need in outcome.needs] == [{path}]
    columns = make_optional(table.layout.columns, outcome.needs[0].relaxed)
    wanted = build_table_schema(columns, (), frozenset(), nanoseconds=False)
    assert not wanted.find_field(optional).required
    again = _events(append(0, {"id": pa.int64(), "v": to_arrow_schema(wanted).field("v").type}), good, lacking)
    assert not again.needs and not again.faults
    assert [row["id"] for row in rows(again)] == [1, 1]


@pytest.mark.parametrize("name", KINDS)
def test_what_the_source_still_requires_is_a_dead_letter(name: str) -> None:
    """A row that lacks it against its own schema: only that row, and the table stays."""
    kind, path = KINDS[name]
    good, lacking = THERE[name]
    beside = tuple(told for told in ("v.element", "v.value", "v.l", "v.s") if told != ".".join(path))
    outcome = _events(append(0, {"id": pa.int64(), "v": kind}), *(_event(kind, v, *beside) for v in (good, lacking)))
    assert not outcome.needs
    assert dead(outcome) == {1: f"column {'.'.join(path)} is required, and the event has no value for it"}


@pytest.mark.parametrize("name", KINDS)
def test_a_table_that_does_not_evolve_stays(name: str) -> None:
    """What a row lacks makes a dead letter of it, or a null of an optional value around; none is written with less."""
    kind, path = KINDS[name]
    table = append(0, {"id": pa.int64(), "v": kind})
    outcome = _events(table, *(_event(kind, value, ".".join(path)) for value in THERE[name]), evolve=False)
    assert not outcome.needs
    assert set(dead(outcome)) <= {1}
    for part in outcome.parts:
        assert not list(find_missing_values(part.rows.column("v"), table.layout.columns.field("v")))


def test_events_without_schema_prove_nothing() -> None:
    """A value that they lack is a dead letter, in structs and in lists."""
    table = append(0, {"id": pa.int64(), "v": _needed(), "l": pa.list_(_needed())})
    good = {"id": 1, "v": {"x": 1}, "l": [{"x": 1}]}
    outcome = _events(table, good, {**good, "v": {"y": 1}}, {**good, "l": [{"x": 1}, {"y": 1}]})
    assert not outcome.needs
    assert {row: reason.split()[1] for row, reason in dead(outcome).items()} == {1: "v.x", 2: "l.element.x"}


def test_a_field_that_events_do_not_have_any_more() -> None:
    """The source dropped it, told by its schema; only where the struct is there."""
    table = append(0, {"id": pa.int64(), "v": _needed()})
    left = pa.struct([("y", pa.int64())])
    assert not _events(table, _event(left, None)).needs
    (need,) = _events(table, _event(left, {"y": 1})).needs
    assert need.relaxed == {("v", "x")}


def test_a_table_that_lacks_nothing_stays() -> None:
    """Nulls of what is optional, null structs, empty lists: the table requires none of them."""
    kind = pa.struct([("s", _needed()), ("l", pa.list_(_needed()))])
    table = append(0, {"id": pa.int64(), "v": kind})
    values = (None, {"s": None, "l": None}, {"s": None, "l": [None]}, {"s": {"x": 1, "y": None}, "l": []})
    told = [_event(kind, value, "v.s", "v.l", "v.l.element", "v.s.x", "v.s.y", "v.l.element.x") for value in values]
    outcome = _events(table, *told)
    assert not outcome.needs and not outcome.faults
    assert [row["v"] for row in rows(outcome)] == list(values)


CUSTOMER = pa.struct(
    [
        pa.field("id", pa.int64()),
        pa.field("label", pa.string(), nullable=False),
        pa.field("sub", pa.struct([("code", pa.string()), pa.field("note", pa.string(), nullable=False)])),
    ]
)


def _customer(value: Any, *optional: str) -> dict[str, Any]:
    row = pa.struct([("customer", CUSTOMER), (DELETED_COLUMN, pa.string())])
    schema = _schema(row, frozenset(f"r.{path}" for path in (*optional, DELETED_COLUMN)), "r")
    return {"schema": schema, "payload": {"customer": value, DELETED_COLUMN: "false"}}


@pytest.mark.parametrize("configured", [True, False])
def test_keys_and_the_structs_around_them_stay_required(configured: bool) -> None:
    """Identifier fields and configured keys: what is beside them in their struct becomes optional, they never do."""
    keys, columns = ("customer.id", "customer.sub.code"), {"customer": CUSTOMER, DELETED_COLUMN: pa.string()}
    table = upsert(0, columns, keys, keys_from="value")
    if configured:
        table = attrs.evolve(table, layout=attrs.evolve(table.layout, id_columns=keys))
    free = ("customer", "customer.id", "customer.label", "customer.sub", "customer.sub.code", "customer.sub.note")
    beside = _customer({"id": 1, "label": None, "sub": {"code": "c", "note": None}}, *free)
    (need,) = _events(table, beside).needs
    assert need.relaxed == {("customer", "label"), ("customer", "sub", "note")}
    for value in ({"id": None, "label": "l", "sub": {"code": "c", "note": "n"}}, {"id": 1, "label": "l", "sub": None}):
        outcome = _events(table, _customer(value, *free))
        assert not outcome.needs and list(dead(outcome)) == [0]


def test_rows_that_go_need_no_such_fields() -> None:
    """A delete lacks what it wants: the table stays as it is."""
    columns = {"id": pa.int64(), "v": _needed(), DELETED_COLUMN: pa.string()}
    table, row = upsert(0, columns, ("id",)), pa.struct(list(columns.items()))
    schema = _schema(row, frozenset({"r.v", "r.v.x", f"r.{DELETED_COLUMN}"}), "r")
    gone = {"schema": schema, "payload": {"id": 1, "v": {"x": None, "y": 1}, DELETED_COLUMN: "true"}}
    outcome = _events(table, gone, keys=[{"id": 1}])
    assert not outcome.needs and not outcome.faults


def test_envelopes_tell_of_fields_within_their_images() -> None:
    """The image of a change event has the flags; those of `before` alone are taken where there is no other."""
    kind = _needed()
    image = {**_schema(pa.struct([("id", pa.int64()), ("v", kind)]), frozenset({"r", "r.v", "r.v.x"}), "r")}
    source = {"type": "struct", "fields": [{"field": "ts_ns", "type": "int64"}], "field": "source"}
    fields = [{**image, "field": "before"}, {**image, "field": "after"}, source, {"type": "string", "field": "op"}]
    payload = {"before": None, "after": {"id": 1, "v": {"y": 2}}, "source": {"ts_ns": 1}, "op": "c"}
    event = {"schema": {"type": "struct", "fields": fields}, "payload": payload}
    (need,) = _events(append(0, {"id": pa.int64(), "v": kind}), event).needs
    assert need.relaxed == {("v", "x")}
    assert need.optional["v.x"] and not need.optional["v.y"]


def test_renamed_columns_keep_what_is_told_of_their_fields() -> None:
    """The path within a column follows its new name, whatever other columns have names with dots."""
    table = attrs.evolve(append(0, {"id": pa.int64(), "now": _needed()}), renames={"v": "now"})
    (need,) = _events(table, _event(_needed(), {"x": None, "y": 1}, "v.x")).needs
    assert need.relaxed == {("now", "x")}
    shape = pa.struct([("v", _needed()), ("v.x.y", pa.int64())])
    told = attrs.evolve(
        need, row=shape, optional={"v": True, "v.x": True, "v.x.y": False}, relaxed=frozenset({("v", "x")})
    )
    made = rename_shape(told, {"v": "now"})
    assert made.optional == {"now": True, "now.x": True, "v.x.y": False}
    assert made.relaxed == {("now", "x")}


def test_columns_of_another_case() -> None:
    """What is told of fields is found where columns differ in case only."""
    table = append(0, {"id": pa.int64(), "v": _needed()})
    event = _event(_needed(), {"x": None, "y": 1}, "V.x", name="V")
    made = plan(table, case_insensitive=True, events=EventSettings("auto", "auto", (), "__"))
    (need,) = decode(run(event), made).needs
    assert need.relaxed == {("v", "x")}


def test_keys_of_maps_are_never_changed() -> None:
    """Iceberg does not alter the key of a map; what it lacks is told, so that the record is a dead letter."""
    kind = pa.map_(_needed(), pa.int64())
    column = pa.array([[({"x": 1, "y": 1}, 1)], None, [({"x": 2, "y": 1}, 1), ({"x": None, "y": 2}, 2)]], _open(kind))
    (missing,) = find_missing_values(column, pa.field("v", kind))
    assert (missing.path, missing.rows.tolist(), missing.in_key) == (("v", "key", "x"), [False, False, True], True)
    assert make_optional(pa.schema([("v", kind)]), [missing.path]) == pa.schema([("v", kind)])


def test_maps_in_slices_and_below_null_structs() -> None:
    """The pairs of each row are its own, wherever the column begins, and a null row has none."""
    kind = pa.map_(pa.string(), _needed())
    maps = pa.array(
        [[("a", {"x": None})], [("b", {"x": 1})], None, [], [("c", {"x": 2}), ("d", {"x": None})]], _open(kind)
    )
    (missing,) = find_missing_values(maps[1:], pa.field("v", kind))
    assert missing.rows.tolist() == [False, False, False, True]
    around = pa.StructArray.from_arrays([maps], names=["m"], mask=pa.array([True, False, False, False, True]))
    assert not list(find_missing_values(around, pa.field("s", pa.struct([("m", kind)]))))


def _open(kind: pa.MapType) -> pa.MapType:
    open_struct = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    return pa.map_(*(open_struct if pa.types.is_struct(part) else part for part in (kind.key_type, kind.item_type)))


def test_slices_and_types_that_do_not_match() -> None:
    """Rows are told by their place in the slice; a column that is nested otherwise is no matter of this."""
    kind = pa.list_(_needed())
    items = [[{"x": None}], None, [{"x": 1}], [{"x": 2}, {"x": None}], []]
    column = pa.array(items, pa.list_(pa.struct([("x", pa.int64())])))
    (missing,) = find_missing_values(column[1:], pa.field("v", kind))
    assert missing.rows.tolist() == [False, False, True, False]
    assert not list(find_missing_values(pa.array(["a"]), pa.field("v", kind)))
    assert not requires_within(pa.map_(pa.string(), pa.list_(pa.int64())))


def test_only_what_is_named_becomes_optional() -> None:
    """Other required fields stay, and a path that is not there changes nothing."""
    columns = pa.schema([pa.field("v", pa.list_(_needed(_needed())), nullable=False)])
    made = make_optional(columns, [("v", "element", "x", "x"), ("v", "no"), ("w",)])
    item = made.field("v").type.value_type
    assert not made.field("v").nullable and not item.field("x").nullable
    assert item.field("x").type.field("x").nullable
