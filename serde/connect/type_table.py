"""Connect type, schema name -> logical Arrow type: the one table of types, whatever the format of the messages.

A format reads each value into `plain`, the Arrow type of the Connect type; `step` makes it the logical one. A schema
name that is not here counts as its Connect type.
Sources: Kafka's org.apache.kafka.connect.data.*; Debezium 3.7 (io.debezium.time.*, io.debezium.data.*).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa
from attrs import evolve, frozen

from serde import arrays
from serde.arrays import Mask
from serde.connect import temporal, variable_scale_decimal
from serde.connect.schema_node import Convert

Parameters = Mapping[str, str]
CONNECT = "org.apache.kafka.connect.data."
TIME = "io.debezium.time."
DATA = "io.debezium.data."
JSON_TEXT = DATA + "Json"
_MAX_PRECISION = 38


@frozen(eq=False)
class Kind:
    """A row of the table; `note` says what a reader has to know, faults included."""

    plain: pa.DataType
    logical: pa.DataType
    step: Convert | None = None
    note: str = ""
    name: str = ""
    """The schema name that a fault tells, or the Connect type."""


def _small(array: pa.Array) -> tuple[pa.Array, Mask | None]:
    return array.cast(pa.int32()), None


_INT32, _INT64, _TEXT, _BYTES = Kind(pa.int32(), pa.int32()), Kind(pa.int64(), pa.int64()), pa.string(), pa.binary()
PRIMITIVES: Mapping[str, Kind] = {
    "int8": Kind(pa.int8(), pa.int32(), _small, "Iceberg has no smaller integer"),
    "int16": Kind(pa.int16(), pa.int32(), _small, "Iceberg has no smaller integer"),
    "int32": _INT32,
    "int64": _INT64,
    "float": Kind(pa.float32(), pa.float32(), None, "NaN and the infinities too"),
    "float32": Kind(pa.float32(), pa.float32(), None, "NaN and the infinities too"),
    "double": Kind(pa.float64(), pa.float64(), None, "NaN and the infinities too"),
    "float64": Kind(pa.float64(), pa.float64(), None, "NaN and the infinities too"),
    "boolean": Kind(pa.bool_(), pa.bool_()),
    "string": Kind(_TEXT, _TEXT),
    "bytes": Kind(_BYTES, _BYTES),
}
_YEARS = "years 0001 to 9999; infinity and anything beyond is a fault"
_DAY = "00:00:00 up to, not with, 24:00:00; anything else is a fault"
_DATE = Kind(pa.int32(), pa.date32(), temporal.days, f"days; {_YEARS}")
_TIME_MS = Kind(pa.int32(), pa.time64("us"), temporal.time_ms, f"milliseconds; {_DAY}")
_TIMESTAMP_MS = Kind(pa.int64(), pa.timestamp("us"), temporal.timestamp_ms, f"milliseconds, no zone; {_YEARS}")
_WORDS = Kind(_TEXT, _TEXT)

NAMED: Mapping[tuple[str, str], Kind] = {
    ("int32", CONNECT + "Date"): _DATE,
    ("int32", CONNECT + "Time"): _TIME_MS,
    ("int64", CONNECT + "Timestamp"): _TIMESTAMP_MS,
    ("int32", TIME + "Date"): _DATE,
    ("int32", TIME + "Time"): _TIME_MS,
    ("int64", TIME + "MicroTime"): Kind(pa.int64(), pa.time64("us"), temporal.time_us, f"microseconds; {_DAY}"),
    ("int64", TIME + "NanoTime"): Kind(
        pa.int64(), pa.time64("us"), temporal.time_ns, f"nanoseconds, whole microseconds only; {_DAY}"
    ),
    ("int64", TIME + "Timestamp"): _TIMESTAMP_MS,
    ("int64", TIME + "MicroTimestamp"): Kind(
        pa.int64(), pa.timestamp("us"), temporal.timestamp_us, f"microseconds, no zone; {_YEARS}"
    ),
    ("int64", TIME + "NanoTimestamp"): Kind(
        pa.int64(),
        pa.timestamp("ns"),
        temporal.timestamp_ns,
        "nanoseconds, no zone; years 1677 to 2262; the least and the greatest long stand for infinity: a fault",
    ),
    ("string", TIME + "ZonedTimestamp"): Kind(
        _TEXT,
        pa.timestamp("us", "UTC"),
        temporal.zoned_timestamp,
        f"ISO text with Z or offset; digits below the microsecond must be zero; {_YEARS}",
    ),
    ("string", TIME + "ZonedTime"): evolve(_WORDS, note="Iceberg has no time of day with a zone"),
    ("string", TIME + "IsoDate"): Kind(_TEXT, pa.date32(), temporal.iso_date, f"with or without Z behind it; {_YEARS}"),
    ("string", TIME + "IsoTime"): Kind(
        _TEXT, pa.time64("us"), temporal.iso_time, f"with or without Z behind it; {_DAY}"
    ),
    ("string", TIME + "IsoTimestamp"): Kind(
        _TEXT, pa.timestamp("us"), temporal.iso_timestamp, f"with or without Z behind it; {_YEARS}"
    ),
    ("int32", TIME + "Year"): evolve(_INT32, note="the number of the year"),
    ("string", TIME + "Interval"): evolve(_WORDS, note="ISO 8601 duration, as sent"),
    ("int64", TIME + "MicroDuration"): evolve(_INT64, note="microseconds, a month being 30.4375 days at the source"),
    ("int64", TIME + "NanoDuration"): evolve(_INT64, note="nanoseconds"),
    ("string", DATA + "Uuid"): Kind(_TEXT, pa.uuid(), arrays.uuid, "36 characters with dashes, any case"),
    ("string", JSON_TEXT): evolve(
        _WORDS, note="as sent, spaces and repeated keys included; variant in new columns with `nested-as-variant`"
    ),
    ("string", DATA + "Xml"): evolve(_WORDS, note="as sent"),
    ("string", DATA + "Enum"): evolve(_WORDS, note="the label"),
    ("string", DATA + "EnumSet"): evolve(_WORDS, note="labels joined by commas"),
    ("string", DATA + "Ltree"): evolve(_WORDS, note="the path"),
    ("string", DATA + "TsVector"): evolve(_WORDS, note="as sent"),
    ("bytes", DATA + "Bits"): Kind(_BYTES, _BYTES, None, "least significant byte first, as sent"),
}

_SCALED = pa.struct([pa.field("scale", pa.int32()), pa.field("value", pa.binary())])
STRUCTURES: Mapping[str, Kind] = {
    DATA + "VariableScaleDecimal": Kind(
        _SCALED,
        pa.string(),
        variable_scale_decimal.text,
        "digits and point, no exponent; the scale differs per row",
        DATA + "VariableScaleDecimal",
    ),
}
"""Structs that stand for one value."""


def find(kind: str, name: str | None, parameters: Parameters) -> Kind | None:
    """The row of a schema type, its semantic name and parameters; None for an unknown type.

    ValueError where Arrow and Iceberg have no such decimal.
    """
    if kind == "bytes" and name == CONNECT + "Decimal":
        return _decimal(name, parameters)
    named = NAMED.get((kind, name or ""))
    if named is not None:
        return evolve(named, name=name or kind)
    found = PRIMITIVES.get(kind)
    return None if found is None else evolve(found, name=kind)


def _decimal(name: str, parameters: Parameters) -> Kind:
    """decimal128(precision or 38, scale)."""
    scale = int(parameters.get("scale", "0"))
    precision = int(parameters.get("connect.decimal.precision", _MAX_PRECISION))
    if not 0 < precision <= _MAX_PRECISION or not 0 <= scale <= precision:
        raise ValueError(f"no decimal of precision {precision} and scale {scale}")
    kind = pa.decimal128(precision, scale)
    return Kind(_BYTES, kind, partial(arrays.decimal_of, kind=kind), DECIMAL_NOTE, name)


DECIMAL_NOTE = "decimal(precision or 38, scale); a value beyond the precision is a fault"
