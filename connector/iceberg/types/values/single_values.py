"""One value of a column -> Iceberg's forms of it: bytes in manifests, JSON in expressions and partitions. Pure.

Source: Iceberg's spec, "Appendix D: Single-value serialization". Values are those that are stored: numbers for dates
and times, since Python's own end with the year 9999 and have no nanoseconds, and bytes for uuids.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyiceberg.conversions import to_bytes
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    PrimitiveType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from serde.connect.values.iso_text import format_date

_DAY_SECONDS = 86_400
_FRACTION_DIGITS: dict[Any, int] = {
    TimestampType: 6,
    TimestamptzType: 6,
    TimestampNanoType: 9,
    TimestamptzNanoType: 9,
}
_ZONED_TYPES = (TimestamptzType, TimestamptzNanoType)


def to_stored_values(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return a column's values as they are stored; Arrow's scalars of dates and times fail beyond Python's years."""
    kind = column.type
    if isinstance(kind, pa.UuidType):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else None
        if chunks is None:
            return column.storage
        return pa.chunked_array([chunk.storage for chunk in chunks], kind.storage_type)
    if pa.types.is_temporal(kind):
        return column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())  # noqa: PLR2004
    return column


def encode_bytes(kind: PrimitiveType, value: Any) -> bytes:
    """Return a value as manifests have it; a decimal is given by its unscaled number."""
    if isinstance(kind, DecimalType):
        size = (value if value >= 0 else ~value).bit_length() // 8 + 1
        return int(value).to_bytes(size, "big", signed=True)
    return to_bytes(kind, value)


def encode_json(kind: IcebergType, value: Any) -> Any:
    """Return a value as Iceberg's JSON has it."""
    digits = _FRACTION_DIGITS.get(type(kind))
    if digits is not None:
        days, rest = divmod(value, _DAY_SECONDS * 10**digits)
        return f"{format_date(days)}T{_format_time(rest, digits)}{'+00:00' if isinstance(kind, _ZONED_TYPES) else ''}"
    encoder = _TEXT_ENCODERS.get(type(kind))
    return value if encoder is None else encoder(value)


def _format_time(parts: int, digits: int) -> str:
    seconds, fraction = divmod(parts, 10**digits)
    hours, rest = divmod(seconds, 3600)
    return f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}.{fraction:0{digits}d}"


def _name_non_finite(value: float) -> float | str:
    """JSON has no number for these; Java writes their names, and reads none of them (`parse_non_finite`)."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def parse_non_finite(kind: str, value: Any) -> float | None:
    """Return the number that a JSON value of this Java type id names; None where it is none of those without digits."""
    return float(value) if kind in ("FLOAT", "DOUBLE") and value in ("NaN", "Infinity", "-Infinity") else None


_TEXT_ENCODERS: dict[Any, Callable[[Any], Any]] = {
    FloatType: _name_non_finite,
    DoubleType: _name_non_finite,
    DateType: format_date,
    TimeType: lambda micros: _format_time(micros, 6),
    UUIDType: lambda value: str(uuid.UUID(bytes=value)),
    FixedType: bytes.hex,
    BinaryType: bytes.hex,
    DecimalType: "{:f}".format,
}
