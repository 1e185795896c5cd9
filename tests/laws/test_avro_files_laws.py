"""Laws of Avro data files: whatever rows they are given, fastavro reads those rows, and bounds hold each value."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes

from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.write.formats.avro import AvroFile
from tests.harness.rounds import draws
from tests.model import avro_files
from tests.unit.sink_plans import layout

Columns = dict[str, pa.DataType]
LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(max_size=40),
    pa.binary(): st.binary(max_size=40),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.uuid(): st.uuids(),
    pa.date32(): st.dates(),
    pa.time64("us"): st.times(),
    pa.timestamp("us"): st.datetimes(),
    pa.decimal128(5, 2): st.decimals(-999, 999, places=2),
    pa.decimal128(30, 4): st.decimals(-(10**20), 10**20, places=4),
}
ORDERED = (pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.binary(), pa.decimal128(5, 2), pa.decimal128(30, 4))


def _types() -> st.SearchStrategy[pa.DataType]:
    # Arrow makes no nested uuids of Python's values.
    leaf = st.sampled_from([kind for kind in LEAVES if kind != pa.uuid()])
    return st.just(pa.uuid()) | st.recursive(
        leaf,
        lambda inner: st.one_of(
            inner.map(pa.list_),
            st.tuples(st.sampled_from([pa.string(), pa.int64()]), inner).map(lambda pair: pa.map_(*pair)),
            st.lists(inner, min_size=1, max_size=3).map(
                lambda kinds: pa.struct([pa.field(f"f{place}", kind) for place, kind in enumerate(kinds)])
            ),
        ),
        max_leaves=4,
    )


def _values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        made: st.SearchStrategy[Any] = st.fixed_dictionaries({field.name: _values(field.type) for field in kind})
    elif pa.types.is_list(kind):
        made = st.lists(_values(kind.value_type), max_size=3)
    elif pa.types.is_map(kind):
        pairs = st.dictionaries(LEAVES[kind.key_type], _values(kind.item_type), max_size=3)
        made = pairs.map(lambda found: list(found.items()))
    else:
        made = LEAVES[kind]
    return st.none() | made


@st.composite
def tables(draw: st.DrawFn) -> tuple[Columns, list[list[dict[str, Any]]]]:
    """Columns, and rows of them in some parts."""
    columns = {f"c{place}": kind for place, kind in enumerate(draw(st.lists(_types(), min_size=1, max_size=4)))}
    row = st.fixed_dictionaries({name: _values(kind) for name, kind in columns.items()})
    return columns, draw(st.lists(st.lists(row, max_size=6), min_size=1, max_size=3))


@given(tables(), st.integers(0, 2))
@settings(max_examples=draws(100))
def test_files_hold_the_rows(table: tuple[Columns, list[list[dict[str, Any]]]], skipped: int) -> None:
    """Rows in parts, slices of batches among them, are read back in order; no value is outside of its bounds."""
    columns, parts = table
    schema = build_table_schema(pa.schema(list(columns.items())), (), frozenset(), nanoseconds=False)
    given_to, stream = layout(columns), io.BytesIO()
    file = AvroFile(stream, schema, given_to)
    for part in parts:
        file.write(pa.Table.from_batches([pa.RecordBatch.from_pylist(part, given_to.columns).slice(skipped)]))
    size, told = file.close()
    rows = [row for part in parts for row in part[skipped:]]
    assert (size, told["record_count"]) == (len(stream.getvalue()), len(rows))
    stream.seek(0)
    assert avro_files.read(stream) == [
        {name: avro_files.expected(row[name], kind) for name, kind in columns.items()} for row in rows
    ]
    for field, kind in zip(schema.fields, columns.values(), strict=True):
        values = [row[field.name] for row in rows if row[field.name] is not None]
        if kind not in ORDERED:
            continue
        low, high = (told[side].get(field.field_id) for side in ("lower_bounds", "upper_bounds"))
        assert (low is None) == (not values)
        assert low is None or all(from_bytes(field.field_type, low) <= value for value in values)
        assert high is None or all(from_bytes(field.field_type, high) >= value for value in values)
