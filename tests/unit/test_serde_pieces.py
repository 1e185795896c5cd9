"""How much is read in one step: about a megabyte, more of wide rows, never more than sixteen."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from serde.formats import make_deserializer
from serde.json.columns import column_reader
from serde.piece_sizes import choose_piece_bytes, count_leaves

pytestmark = pytest.mark.unit
MEGABYTE = 1 << 20
WIDE = [f"c{place}" for place in range(600)]


def _flat(columns: int) -> pa.StructType:
    return pa.struct([(f"c{place}", pa.int64()) for place in range(columns)])


def test_narrow_rows_are_read_a_megabyte_at_a_time() -> None:
    """Up to 32 columns a step takes what fits the processor's cache."""
    assert [choose_piece_bytes(_flat(columns)) for columns in (0, 1, 14, 32)] == [MEGABYTE] * 4


def test_steps_grow_with_columns_up_to_a_bound() -> None:
    """So that what a column costs in each step is little beside its values, and memory stays bounded."""
    assert [choose_piece_bytes(_flat(columns)) // MEGABYTE for columns in (64, 320, 512, 50_000)] == [2, 10, 16, 16]


def test_columns_are_counted_where_values_are() -> None:
    """Fields of structs, items of lists, keys and values of maps; a struct around them is none."""
    kind = pa.struct([("a", _flat(3)), ("b", pa.list_(_flat(2))), ("c", pa.map_(pa.string(), pa.int64()))])
    assert count_leaves(kind) == 3 + 2 + 2


def test_wide_json_is_read_in_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six megabytes of rows of 600 columns take one step, and not one for each megabyte; nothing is lost by it."""
    steps: list[int] = []
    usual = column_reader._parse
    monkeypatch.setattr(column_reader, "_parse", lambda *given, **more: steps.append(1) or usual(*given, **more))
    values = [json.dumps(dict.fromkeys(WIDE, row)).encode() for row in range(1_000_000, 1_000_800)]
    decoded = make_deserializer("json").decode(pa.array(values, pa.binary()), "VALUE_CONVERTER")
    (block,) = decoded.blocks
    assert sum(map(len, values)) > 6 * MEGABYTE and len(steps) == 1 and not decoded.faults
    assert block.fields.field(599).to_pylist() == list(range(1_000_000, 1_000_800))
