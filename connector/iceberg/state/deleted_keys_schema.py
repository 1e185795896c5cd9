"""Deleted keys -> rows of their table: its columns. The driver keeps the table, executors write its files."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from connector.iceberg.types.schemas.arrow_types import to_arrow_schema

DELETED_KEYS_SCHEMA = Schema(
    NestedField(1, "connector", StringType(), required=True),
    NestedField(2, "table", StringType(), required=True),
    NestedField(3, "key", StringType(), required=True),
    NestedField(4, "date", LongType(), required=True),
    NestedField(5, "noted_at", TimestamptzType(), required=True),
    NestedField(6, "source", LongType()),
    NestedField(7, "place_0", LongType()),
    NestedField(8, "place_1", LongType()),
    NestedField(9, "place_2", LongType()),
)
"""`source` and what follows tell where the delete stands in its source's log (`positions.log_positions`); tables
that were made before these columns get them. A `date` that proves nothing is the least number."""
SOURCE_POSITION_COLUMNS = ("source", "place_0", "place_1", "place_2")
DELETE_ORDER_COLUMNS = ("date", *SOURCE_POSITION_COLUMNS)
DELETED_KEYS_COLUMNS = to_arrow_schema(DELETED_KEYS_SCHEMA)
