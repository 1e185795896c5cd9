"""Which columns have bounds, and how those are read."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg import types as iceberg
from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema

from connector.iceberg.keys.intervals import ORDERED_TYPES, is_ordered_type
from connector.iceberg.types.schemas.arrow_types import to_arrow_schema

pytestmark = pytest.mark.unit

TYPES = (
    iceberg.BooleanType(),
    iceberg.IntegerType(),
    iceberg.LongType(),
    iceberg.FloatType(),
    iceberg.DoubleType(),
    iceberg.DecimalType(12, 2),
    iceberg.DateType(),
    iceberg.TimeType(),
    iceberg.TimestampType(),
    iceberg.TimestamptzType(),
    iceberg.TimestampNanoType(),
    iceberg.TimestamptzNanoType(),
    iceberg.StringType(),
    iceberg.UUIDType(),
    iceberg.FixedType(4),
    iceberg.BinaryType(),
)


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_iceberg_and_arrow_agree_on_what_is_ordered(kind: iceberg.PrimitiveType) -> None:
    """A type has an order by Iceberg's name for it where it has one by Arrow's."""
    arrow: pa.DataType = to_arrow_schema(Schema(iceberg.NestedField(1, "it", kind))).field(0).type
    assert isinstance(kind, ORDERED_TYPES) == is_ordered_type(arrow)


def test_bounds_of_a_file_from_before_its_column_was_widened() -> None:
    """PyIceberg reads the narrower form that older files keep."""
    assert from_bytes(iceberg.LongType(), (-5).to_bytes(4, "little", signed=True)) == -5
    assert str(from_bytes(iceberg.DecimalType(30, 2), (-123).to_bytes(2, "big", signed=True))) == "-1.23"
