"""Bounds of a column -> its lowest and highest value; which columns have them, and which of them touch. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.types import (
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

T = TypeVar("T")
Interval = tuple[Any, Any]
"""The lowest and the highest value, both of them included."""

ORDERED_TYPES = (IntegerType, LongType, DateType, DecimalType, StringType, TimestampType, TimestamptzType)
"""The types with an order that Iceberg's bounds keep, and whose values Python has without loss."""


def is_ordered_type(kind: pa.DataType) -> bool:
    """Tell the same of Arrow's types."""
    types = pa.types
    timestamp = types.is_timestamp(kind) and kind.unit == "us"
    return types.is_integer(kind) or types.is_date(kind) or types.is_string(kind) or types.is_decimal(kind) or timestamp


def parse_interval(kind: PrimitiveType, low: bytes | None, high: bytes | None) -> Interval | None:
    """Read the bounds of a column as a manifest has them; None where one is not there, or they tell nothing.

    Other writers have cut texts within a letter, and left bounds of a type that the column has had before.
    """
    if low is None or high is None:
        return None
    try:
        span = from_bytes(kind, low), from_bytes(kind, high)
    except (ValueError, ArithmeticError, struct.error):
        return None
    return span if span[0] <= span[1] else None


def group_overlapping(items: Iterable[T], span: Callable[[T], Interval]) -> list[list[T]]:
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
