"""Text <-> variant columns, and the mark of a variant in a Parquet file's footer."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.errors import FatalError
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.types.schemas.arrow_types import VARIANT_ARROW_TYPE, build_table_schema, is_variant_candidate
from connector.iceberg.types.schemas.schema_evolution import evolve, union_shapes
from connector.iceberg.types.values.variants import VARIANT_STORAGE, decode_variants, encode_variants, to_json_text
from connector.iceberg.write.formats.parquet_variants import VariantAnnotator
from connector.iceberg.write.partitioning import UNPARTITIONED
from connector.iceberg.write.rolling_file import FileKind, RollingFile

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text()
    | st.floats(-1e6, 1e6).map(lambda x: x + 0.5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.none() | VALUES.filter(lambda value: value is not None), max_size=8))
def test_documents_come_back(values: list[Any]) -> None:
    """Every JSON document is the same after it was a variant; no document stays none."""
    texts = pa.chunked_array([pa.array([None if v is None else json.dumps(v) for v in values], pa.string())])
    made = decode_variants(encode_variants(texts)).to_pylist()
    assert [None if text is None else json.loads(text) for text in made] == values


@pytest.mark.parametrize("text", ["plain", "", "{", '{"a":1,}', "[" * 5000])
def test_text_that_is_no_json_is_kept(text: str) -> None:
    """What cannot be read as JSON is the variant of that text."""
    (made,) = decode_variants(encode_variants(pa.chunked_array([[text]]))).to_pylist()
    assert json.loads(made) == text


def test_nested_values_become_json() -> None:
    """Structs, maps, lists, decimals and bytes are written as JSON has them; text stays."""
    kind = pa.struct(
        [("d", pa.decimal128(9, 2)), ("m", pa.map_(pa.string(), pa.int64())), ("b", pa.binary()), ("n", pa.int64())]
    )
    column = pa.array([{"d": Decimal("1.50"), "m": [("k", 1)], "b": b"\x01", "n": None}, None], kind)
    assert to_json_text(column, keep_nulls=True).to_pylist() == ['{"d":1.50,"m":{"k":1},"b":"AQ==","n":null}', None]
    assert to_json_text(column, keep_nulls=False).to_pylist()[0] == '{"d":1.50,"m":{"k":1},"b":"AQ=="}'
    assert to_json_text(pa.array(["x"]), keep_nulls=True).to_pylist() == ["x"]


def test_shredded_variants_are_refused() -> None:
    """A file whose variants are split into typed columns is an error that says so, never half a value."""
    kind = pa.struct([*VARIANT_STORAGE, pa.field("typed_value", pa.int64())])
    with pytest.raises(FatalError, match="shredded"):
        decode_variants(pa.array([{"metadata": b"", "value": b"", "typed_value": 1}], kind))


def test_columns_that_become_variants() -> None:
    """Structs, maps and lists of them are documents; lists of single values are not. A column that is there stays."""
    assert is_variant_candidate(pa.struct([("a", pa.int64())])) and is_variant_candidate(
        pa.list_(pa.map_(pa.string(), pa.int64()))
    )
    assert not is_variant_candidate(pa.list_(pa.string())) and not is_variant_candidate(pa.string())
    assert (
        union_shapes([pa.struct([("v", pa.string())]), pa.struct([("v", VARIANT_ARROW_TYPE)])]).field("v").type
        == VARIANT_ARROW_TYPE
    )
    table = pa.schema([("v", pa.string())])
    assert evolve(table, pa.struct([("v", VARIANT_ARROW_TYPE), ("w", VARIANT_ARROW_TYPE)]), add=True).types == [
        pa.string(),
        VARIANT_ARROW_TYPE,
    ]


def test_a_file_says_which_column_is_a_variant(tmp_path: Path) -> None:
    """The footer marks the variant among columns of all kinds, and the description has no bounds of it."""
    names = [f"c{place}" for place in range(20)]
    kinds = [pa.int64(), pa.decimal128(20, 3), pa.timestamp("us", "UTC"), pa.list_(pa.string()), VARIANT_ARROW_TYPE]
    columns = pa.schema([pa.field(name, kinds[place % 5]) for place, name in enumerate(names)])
    schema = build_table_schema(columns, (), frozenset(), nanoseconds=True).model_dump_json()
    layout = TableLayout("d.t", "u", str(tmp_path), schema, '{"spec-id":0,"fields":[]}', 0, {}, {})
    assert layout.variants == {"c4", "c9", "c14", "c19"}
    batch = pa.RecordBatch.from_pylist([dict.fromkeys(names) | {"c4": '{"a":1}'}, dict.fromkeys(names)], layout.columns)
    file = RollingFile(layout, FileKind.data(layout), UNPARTITIONED, "x")
    file.write(batch)
    (description,) = file.close()
    told = json.loads(description.json)
    (path,) = (tmp_path / "data").glob("*.parquet")
    assert told["file-size-in-bytes"] == path.stat().st_size
    found = pq.ParquetFile(path)
    lines = str(found.schema).splitlines()
    assert [line.split()[3] for line in lines if "(Variant(1))" in line] == ["c4", "c9", "c14", "c19"]
    assert decode_variants(found.read().column("c4").combine_chunks()).to_pylist() == ['{"a":1}', None]
    numbers = {field["name"]: field["id"] for field in json.loads(schema)["fields"]}
    assert numbers["c4"] in told["column-sizes"]["keys"]
    assert numbers["c4"] not in told["value-counts"]["keys"] + told["lower-bounds"]["keys"]


def test_what_lies_within_a_column_is_no_variant_for_its_name(tmp_path: Path) -> None:
    """Values of maps, elements of lists and fields of structs may have the name of a variant beside them."""
    kinds = {
        "m": pa.map_(pa.string(), pa.struct([("value", pa.struct([("key", pa.int64())]))])),
        "value": VARIANT_ARROW_TYPE,
        "l": pa.list_(pa.struct([("x", pa.int64())])),
        "element": VARIANT_ARROW_TYPE,
        "s": pa.struct([("value", pa.struct([("x", pa.int64())])), ("element", pa.string())]),
        "last": VARIANT_ARROW_TYPE,
    }
    schema = build_table_schema(pa.schema(list(kinds.items())), (), frozenset(), nanoseconds=True).model_dump_json()
    layout = TableLayout("d.t", "u", str(tmp_path), schema, '{"spec-id":0,"fields":[]}', 0, {}, {})
    row = {
        "m": [("k", {"value": {"key": 1}})],
        "value": "[1]",
        "l": [{"x": 2}],
        "element": "{}",
        "s": {"value": {"x": 3}, "element": "e"},
        "last": "4",
    }
    file = RollingFile(layout, FileKind.data(layout), UNPARTITIONED, "x")
    file.write(pa.RecordBatch.from_pylist([row], layout.columns))
    list(file.close())
    (path,) = (tmp_path / "data").glob("*.parquet")
    lines = str(pq.ParquetFile(path).schema).splitlines()
    assert [line.split()[:4] for line in lines if "(Variant(1))" in line] == [
        ["optional", "group", f"field_id={layout.columns.get_field_index(name) + 1}", name]
        for name in ("value", "element", "last")
    ]


def test_a_footer_is_held_back() -> None:
    """Bytes before the footer pass through at once; a file without such groups is as it was."""
    plain, marked = io.BytesIO(), io.BytesIO()
    table = pa.table({"a": [1, 2]})
    pq.write_table(table, plain)
    stream = VariantAnnotator(marked, {"b"})
    writer = pq.ParquetWriter(stream, table.schema)
    writer.write_table(table)
    before = marked.tell()
    stream.hold_footer()
    writer.close()
    assert before and marked.tell() == before
    assert stream.release() == len(marked.getvalue()) and marked.getvalue() == plain.getvalue()
