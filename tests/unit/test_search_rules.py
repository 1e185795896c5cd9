"""Rules of the OpenSearch sink without a node: type mapping, verdicts, ids, names, versions."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from connector.errors import FatalError
from connector.opensearch.bulk.actions import WriteOptions, delete_documents, index_rows
from connector.opensearch.bulk.item_results import classify_item
from connector.opensearch.documents.document_ids import build_document_ids, build_record_ids
from connector.opensearch.documents.json_values import to_json_texts
from connector.opensearch.indexes.field_names import assign_field_names, assign_fields_by_name, find_aliases
from connector.opensearch.indexes.index_names import to_index_name
from connector.opensearch.indexes.mapping import map_columns, missing_properties, name_inner_path
from connector.sink.fold.document_versions import derive_versions
from serde.events.positions.log_positions import NO_VALUE

TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
SEED = [
    (pa.bool_(), "boolean"),
    (pa.int32(), "long"),
    (pa.int64(), "long"),
    (pa.float32(), "float"),
    (pa.string(), "text"),
    (pa.uuid(), "text"),
    (pa.date32(), "date"),
    (pa.timestamp("us"), "date"),
    (pa.timestamp("us", "UTC"), "date"),
    (pa.decimal128(38, 10), "keyword"),
    (pa.binary(), "binary"),
    (pa.binary(16), "binary"),
    (pa.list_(pa.int64()), "long"),
]


@pytest.mark.parametrize(("kind", "wanted"), SEED)
def test_the_seeds_type_mapping(kind: pa.DataType, wanted: str) -> None:
    """Each Iceberg type has the OpenSearch type that docs/how-to/opensearch.md names."""
    assert map_columns([("c", kind)])["c"]["type"] == wanted


def test_a_double_keeps_its_range() -> None:
    """A double stays a double: dynamic mapping would make it a float, which refuses 1e300."""
    assert map_columns([("c", pa.float64())])["c"]["type"] == "double"


def test_text_is_searched_by_words_and_as_a_whole() -> None:
    """Text and uuids are text with a keyword below."""
    assert map_columns([("c", pa.string())])["c"] == TEXT


def test_structs_are_objects_and_maps_do_not_make_fields_without_end() -> None:
    """Structs are objects; a map is one flat object, its keys are no fields."""
    made = map_columns([("s", pa.struct([("a", pa.int64())])), ("m", pa.map_(pa.string(), pa.string()))])
    assert made == {"s": {"properties": {"a": {"type": "long"}}}, "m": {"type": "flat_object"}}


def _columns(**ids: int) -> dict[str, Any]:
    return {"fields": [{"id": number, "name": name, "type": "string"} for name, number in ids.items()]}


def test_names_that_columns_had_are_free_for_others() -> None:
    """v becomes w, then x, and a new column is called w: it has a field of its own, to which w leads from then on."""
    named = assign_field_names(_columns(v=1), {})
    first = named.aliases(_columns(w=1))
    assert first == {"w": {"type": "alias", "path": "v"}}
    schema = _columns(x=1, w=2)
    made = assign_field_names(schema, named.names, find_aliases(first))
    assert made.columns(schema) == ["v", "w_2"]
    wanted = made.aliases(schema)
    assert wanted == {"x": {"type": "alias", "path": "v"}, "w": {"type": "alias", "path": "w_2"}}
    assert missing_properties({"v": {"type": "text"}, **first}, wanted) == wanted
    assert missing_properties({"v": {"type": "text"}, **wanted}, wanted) == {}


def test_no_two_columns_have_one_field() -> None:
    """The field of a column that has to give way is none that another column has."""
    schema = _columns(w_3=1, w=3)
    assert assign_field_names(schema, {2: "w"}).columns(schema) == ["w_3", "w_3_3"]


NAMES = {
    "metadata": (["_id", "_source", "_ids"], ["_id_1", "_source_2", "_ids"]),
    "through a field": (["a", "a.b"], ["a", "a_b"]),
    "above a field": (["a.b", "a.b.c", "a"], ["a.b", "a_b_c", "a_3"]),
    "nowhere": (["a..b", ".a", ".", "", "a."], ["a__b", "_a", "_", "__4", "a."]),
    "side by side": (["a.b", "a.c", "ab"], ["a.b", "a.c", "ab"]),
}


@pytest.mark.parametrize("case", NAMES)
def test_names_that_no_field_may_have(case: str) -> None:
    """A column has a field of its own where OpenSearch refuses its name: its own metadata's, or a path that is none."""
    given, kept = NAMES[case]
    schema = _columns(**{name: number for number, name in enumerate(given, 1)})
    made = assign_field_names(schema, {})
    assert made.columns(schema) == kept
    assert made.aliases(schema) == {}


@pytest.mark.parametrize("case", NAMES)
def test_columns_that_are_known_by_name(case: str) -> None:
    """Columns of events get the same fields, and keep them while others come before or after them."""
    given, kept = NAMES[case]
    fields: dict[str, str] = {}
    for end in range(1, len(given) + 1):
        fields = assign_fields_by_name(_columns(**{name: n for n, name in enumerate(given[:end], 1)}), fields)
    assert list(fields.values()) == kept
    moved = _columns(**{name: n for n, name in enumerate(["new", *reversed(given)], 1)})
    assert assign_fields_by_name(moved, fields) == {**fields, "new": "new"}
    assert assign_fields_by_name(_columns(**{kept[0]: 1}), {"gone": kept[0]})[kept[0]] != kept[0]


INNER_NAMES = {
    "nowhere": (["", ".x", "a..b", ".", "c. .d", " "], ["_", "_x", "a__b", "__", "c_ _d", " "]),
    "through a field": (["a", "a.b", "a."], ["a", "a_b", "a_"]),
    "above a field": (["a.b", "a", "a_"], ["a.b", "a_", "a__"]),
    "the metadata of a whole document": (["_id", "_source", "a.b"], ["_id", "_source", "a.b"]),
}


@pytest.mark.parametrize("case", INNER_NAMES)
def test_names_within_structs_that_no_field_may_have(case: str) -> None:
    """A struct's fields have fields of their own, alike in the mapping, in documents and in what a key is set in; and
    keep them while others come behind them. Below a map, which is one flat object, there are no fields."""
    given, kept = INNER_NAMES[case]
    kind = pa.struct([(name, pa.int64()) for name in given])
    outer = pa.struct([("..", pa.list_(kind)), ("m", pa.map_(pa.string(), kind))])
    fields: dict[str, Any] = {name: {"type": "long"} for name in kept}
    wanted = {"__": {"properties": fields}, "m": {"type": "flat_object"}}
    assert map_columns([("s", outer)]) == {"s": {"properties": wanted}}
    row = dict(zip(given, range(len(given)), strict=True))
    (text,) = to_json_texts(pa.array([{"..": [row, row], "m": [("k", row)]}], outer)).to_pylist()
    document = dict(zip(kept, range(len(kept)), strict=True))
    assert json.loads(text) == {"__": [document, document], "m": {"k": row}}
    for end in range(1, len(given) + 1):
        part = pa.struct([(name, pa.int64()) for name in given[:end]])
        assert name_inner_path(pa.struct([("s", part)]), ("s", given[end - 1])) == ["s", kept[end - 1]]


def test_a_part_of_a_name_that_is_all_spaces_is_no_path() -> None:
    """OpenSearch refuses such a part as it does an empty one; a name that is all spaces is a field's."""
    schema = _columns(**{"a. .b": 1, " .c": 2, " ": 3, "d. ": 4})
    assert assign_field_names(schema, {}).columns(schema) == ["a_ _b", " _c", " ", "d_ "]


def test_aliases_with_dots() -> None:
    """An alias whose name is a path is found by it: no column gets its name; and a field there is not added again."""
    known = {"v": {"type": "text"}, "w": {"properties": {"x": {"type": "alias", "path": "v"}}}}
    assert find_aliases(known) == {"w.x"}
    assert missing_properties(known, {"w.x": {"type": "alias", "path": "v"}, "w.y": {"type": "long"}}) == {
        "w.y": {"type": "long"}
    }


def test_only_new_fields_are_added() -> None:
    """A field that an index has stays as it is, whatever its type; new ones are added, inside of objects too."""
    there = {"a": {"type": "keyword"}, "s": {"properties": {"x": {"type": "long"}}}}
    wanted = {"a": TEXT, "b": TEXT, "s": {"properties": {"x": TEXT, "y": TEXT}}}
    assert missing_properties(there, wanted) == {"b": TEXT, "s": {"properties": {"y": TEXT}}}


def test_fields_are_added_to_an_object_as_what_it_is() -> None:
    """An object that is mapped as nested gets a field as a nested one, at any depth: OpenSearch turns none plain."""
    inner = {"type": "nested", "dynamic": "false", "properties": {"x": {"type": "long"}}}
    there = {"a": inner, "b": {"properties": {"c": inner}}}
    more = {"properties": {"x": {"type": "long"}, "y": TEXT}}
    added = {**inner, "properties": {"y": TEXT}}
    assert missing_properties(there, {"a": more, "b": {"properties": {"c": more}}}) == {
        "a": added,
        "b": {"properties": {"c": added}},
    }


ISO = [
    (Decimal("1.50"), pa.decimal128(10, 2), "1.50"),
    (date(2024, 2, 3), pa.date32(), "2024-02-03"),
    (datetime(2024, 2, 3, 4, 5, 6, 7), pa.timestamp("us"), "2024-02-03T04:05:06.000007"),
    (datetime(2024, 2, 3, 4, 5, tzinfo=UTC), pa.timestamp("us", "UTC"), "2024-02-03T04:05:00.000000Z"),
    (time(4, 5, 6), pa.time64("us"), "04:05:06.000000"),
    (b"\x00\xff", pa.binary(), "AP8="),
    (float("nan"), pa.float64(), "NaN"),
    (float("-inf"), pa.float64(), "-Infinity"),
]


@pytest.mark.parametrize(("value", "kind", "text"), ISO)
def test_values_that_json_has_no_form_for_are_texts(value: Any, kind: pa.DataType, text: str) -> None:
    """Dates ISO 8601, decimals with all digits, bytes base64."""
    assert json.loads(to_json_texts(pa.array([value], kind))[0].as_py()) == text


def test_a_year_beyond_iso_stays_a_number() -> None:
    """A date that has no ISO form keeps its number of days rather than Arrow's words for it."""
    assert to_json_texts(pa.array([20_000_000], pa.int32()).cast(pa.date32())).to_pylist() == ['"20000000"']


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        ([["us"], ["electronics"]], "us-electronics"),
        ([["u-s"], ["a\\b"]], "u\\-s-a\\\\b"),
        ([["a-b"]], "a-b"),
        ([[""]], "\\e"),
        ([[1], [-2]], "1-\\-2"),
        ([[Decimal("1.10")]], "1.10"),
        ([[b"\x00\xff"]], "AP8="),
        ([[datetime(2024, 1, 1)]], "2024-01-01T00:00:00.000000"),
    ],
)
def test_a_document_id_is_made_of_the_keys_values(columns: list[list[Any]], wanted: str) -> None:
    """The values of the key with - between them, escaped so that none collide."""
    assert build_document_ids([pa.array(column) for column in columns]).to_pylist() == [wanted]


def test_a_long_id_is_hashed() -> None:
    """An id over 512 bytes becomes a hash that no plain id can be."""
    (long,) = build_document_ids([pa.array(["x" * 513])]).to_pylist()
    assert long.startswith("\\#") and len(long) == 66
    assert build_document_ids([pa.array([long])]).to_pylist() != [long]


def test_a_key_with_a_null_names_no_document() -> None:
    """A null in any part of a key is refused, not sent as a missing line."""
    for keys in ([pa.array([1, None])], [pa.array([1, 2]), pa.array(["a", None])]):
        with pytest.raises(FatalError, match="key has a null"):
            build_document_ids(keys)


def test_records_without_key_are_named_by_their_place() -> None:
    """`key.ignore`: topic+partition+offset, as Aiven's sink names documents."""
    assert build_record_ids("t", 2, pa.array([5])).to_pylist() == ["t+2+5"]


@pytest.mark.parametrize(
    ("status", "kind", "wanted"),
    [
        (201, None, "done"),
        (200, None, "done"),
        (404, None, "done"),
        (409, "version_conflict_engine_exception", "stale"),
        (400, "mapper_parsing_exception", "malformed"),
        (400, "illegal_argument_exception", "malformed"),
        (400, "strict_dynamic_mapping_exception", "malformed"),
        (400, "script_exception", "malformed"),
        (400, "index_closed_exception", "stop"),
        (403, "cluster_block_exception", "again"),
        (403, "index_create_block_exception", "again"),
        (403, "security_exception", "stop"),
        (403, "something_else", "stop"),
        (404, "index_not_found_exception", "gone"),
        (429, "rejected_execution_exception", "again"),
        (429, "cluster_block_exception", "again"),
        (503, "unavailable_shards_exception", "again"),
        (500, "something_else", "stop"),
    ],
)
def test_verdicts(status: int, kind: str | None, wanted: str) -> None:
    """Each item of a bulk response is judged alone: an older version is success, a busy node is asked again."""
    assert classify_item(status, kind) == wanted
    for action, conflict in (("create", "done"), ("update", "again")):
        assert classify_item(status, kind, action=action) == (conflict if wanted == "stale" else wanted)


@pytest.mark.parametrize(
    ("reason", "wanted"),
    [
        ("pipeline with id [tidy] does not exist", "stop"),
        ("Number of documents in shard [i][0] exceeds the limit of [2147483519] documents per shard", "stop"),
        ("field [price] not present as part of path [price]", "malformed"),
    ],
)
def test_what_is_true_of_any_document_blames_none(reason: str, wanted: str) -> None:
    """Where an index lacks its pipeline, or a shard is full, the sink stops: every document would be a dead letter."""
    assert classify_item(400, "illegal_argument_exception", reason) == wanted


def test_lines_of_a_bulk_request() -> None:
    """An action names index, id and version in one line, its document stands in the next."""
    rows = pa.RecordBatch.from_pydict({"a": [1], 'q"': ["x\n"]})
    (made,) = index_rows(WriteOptions("i"), rows, pa.array(["k"]), np.array([7]), np.array([0]))
    head, document = made.body.decode().splitlines()
    told = {"_index": "i", "_id": "k", "version": 7, "version_type": "external_gte"}
    assert (json.loads(head), json.loads(document)) == ({"index": told}, {"a": 1, 'q"': "x\n"})
    gone = delete_documents(WriteOptions("i"), pa.array(["k"]), np.array([8]), np.array([0]))
    assert json.loads(gone.body) == {"delete": {**told, "version": 8}}


def test_fields_of_columns_that_are_kept_under_another_name() -> None:
    """Documents have the names of fields, what is read of them those of columns."""
    rows = pa.RecordBatch.from_pydict({"_id": ["x"], "a": [1]})
    style = WriteOptions("i", fields={"_id": "_id_1"})
    (made,) = index_rows(style, rows, pa.array(["k"]), np.array([7]), np.array([0]))
    assert json.loads(made.body.decode().splitlines()[1]) == {"_id_1": "x", "a": 1}
    assert style.name_columns({"_id_1": "x", "a": 1}) == {"_id": "x", "a": 1}


def test_names_are_what_opensearch_allows() -> None:
    """Small letters, dots kept, forbidden characters replaced, no leading -, _ or +."""
    assert to_index_name("Shop.Public.Orders") == "shop.public.orders"
    assert to_index_name('_-a/b*c "d"') == "a_b_c__d_"
    assert to_index_name("___") == "index"


def test_changes_of_one_transaction_have_versions_in_their_order() -> None:
    """A version is the dedup value; its free digits hold the place in the transaction, a finer clock keeps its own."""
    dedup, places = np.array([5_000, 5_000, 5_007, 5_000, NO_VALUE]), np.array([1, 2_000, 3, NO_VALUE, 4])
    assert derive_versions(dedup, places, nanoseconds=True).tolist() == [5_001, 5_999, 5_007, 5_000, NO_VALUE]
    assert derive_versions(dedup, places, nanoseconds=False).tolist() == dedup.tolist(), "others have no free digits"
