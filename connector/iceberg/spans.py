"""Lowest and highest values -> which columns have them, and which of them touch. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.types import (
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

T = TypeVar("T")
Span = tuple[Any, Any]
"""The lowest and the highest value, both of them included."""

ORDERED = (IntegerType, LongType, DateType, DecimalType, StringType, TimestampType, TimestamptzType)
"""The types with an order that Iceberg's bounds keep, and whose values Python has without loss."""


def is_ordered(kind: pa.DataType) -> bool:
    """Tell the same of Arrow's types."""
    types = pa.types
    timestamp = types.is_timestamp(kind) and kind.unit == "us"
    return types.is_integer(kind) or types.is_date(kind) or types.is_string(kind) or types.is_decimal(kind) or timestamp


def touching(items: Iterable[T], span: Callable[[T], Span]) -> list[list[T]]:
    """Group items whose spans touch, directly or through others, in the order of their lowest values."""
    groups: list[list[T]] = []
    end: Any = None
    for item in sorted(items, key=lambda each: span(each)[0]):
        low, high = span(item)
        if groups and low <= end:
            groups[-1].append(item)
            end = max(end, high)
        else:
            groups.append([item])
            end = high
    return groups
