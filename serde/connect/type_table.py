"""Connect type, schema name -> logical Arrow type: the one table of types, whatever the format of the messages.

A format reads each value into `plain`, the Arrow type of the Connect type; `step` makes it the logical one. A schema
name that is not here counts as its Connect type; is it one of Debezium's or Kafka's, whoever reads is told.
Sources: Kafka's org.apache.kafka.connect.data.*; Debezium 3.7 (io.debezium.time.*, io.debezium.data.*).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa
from attrs import evolve, frozen

from serde.arrays import Mask
from serde.connect.schema_node import Convert
from serde.connect.values import temporal, variable_scale_decimal
from serde.connect.values.binary_values import bytes_to_decimal, text_to_uuid
from serde.connect.values.number_text import bytes_to_number_text

Parameters = Mapping[str, str]
CONNECT_PREFIX = "org.apache.kafka.connect.data."
TIME_PREFIX = "io.debezium.time."
DATA_PREFIX = "io.debezium.data."
JSON_TEXT = DATA_PREFIX + "Json"
_JSON_NAMES = {"float32": "float", "float64": "double"}
"""Connect types that JsonConverter calls otherwise."""
_KNOWN_PREFIXES = (CONNECT_PREFIX, "io.debezium.")
_MAX_PRECISION = 38


@frozen(eq=False)
class TypeMapping:
    """A row of the table; `note` says what a reader has to know, faults included."""

    plain: pa.DataType
    logical: pa.DataType
    step: Convert | None = None
    note: str = ""
    name: str = ""
    """The schema name that a fault tells, or the Connect type."""
    scale: int | None = None
    """Digits behind the point of a Connect Decimal, whatever it becomes."""
    unknown: str | None = None
    """A schema name of Debezium or Kafka that says more than is known here: one of a newer version."""


def _widen_int8(array: pa.Array) -> tuple[pa.Array, Mask | None]:
    return array.cast(pa.int32()), None


TEXT = pa.string()
_INT32, _INT64, _TEXT, _BYTES = (
    TypeMapping(pa.int32(), pa.int32()),
    TypeMapping(pa.int64(), pa.int64()),
    TEXT,
    pa.binary(),
)
PRIMITIVE_TYPES: Mapping[str, TypeMapping] = {
    "int8": TypeMapping(pa.int8(), pa.int32(), _widen_int8, "Iceberg has no smaller integer"),
    "int16": TypeMapping(pa.int16(), pa.int32(), _widen_int8, "Iceberg has no smaller integer"),
    "int32": _INT32,
    "int64": _INT64,
    "float": TypeMapping(pa.float32(), pa.float32(), None, "NaN and the infinities too"),
    "float32": TypeMapping(pa.float32(), pa.float32(), None, "NaN and the infinities too"),
    "double": TypeMapping(pa.float64(), pa.float64(), None, "NaN and the infinities too"),
    "float64": TypeMapping(pa.float64(), pa.float64(), None, "NaN and the infinities too"),
    "boolean": TypeMapping(pa.bool_(), pa.bool_()),
    "string": TypeMapping(_TEXT, _TEXT),
    "bytes": TypeMapping(_BYTES, _BYTES),
}
_YEARS = "years 0001 to 9999; infinity and anything beyond is a fault"
_DAY = "00:00:00 up to, not with, 24:00:00; anything else is a fault"
_DATE = TypeMapping(pa.int32(), pa.date32(), temporal.date_from_days, f"days; {_YEARS}")
_TIME_MS = TypeMapping(pa.int32(), pa.time64("us"), temporal.time_from_ms, f"milliseconds; {_DAY}")
_TIMESTAMP_MS = TypeMapping(
    pa.int64(), pa.timestamp("us"), temporal.timestamp_from_ms, f"milliseconds, no zone; {_YEARS}"
)
_WORDS = TypeMapping(_TEXT, _TEXT)

SEMANTIC_TYPES: Mapping[tuple[str, str], TypeMapping] = {
    ("int32", CONNECT_PREFIX + "Date"): _DATE,
    ("int32", CONNECT_PREFIX + "Time"): _TIME_MS,
    ("int64", CONNECT_PREFIX + "Timestamp"): _TIMESTAMP_MS,
    ("int64", CONNECT_PREFIX + "Time"): evolve(_TIME_MS, plain=pa.int64()),
    ("int32", TIME_PREFIX + "Date"): _DATE,
    ("int32", TIME_PREFIX + "Time"): _TIME_MS,
    ("int64", TIME_PREFIX + "MicroTime"): TypeMapping(
        pa.int64(), pa.time64("us"), temporal.time_from_us, f"microseconds; {_DAY}"
    ),
    ("int64", TIME_PREFIX + "NanoTime"): TypeMapping(
        pa.int64(), pa.time64("us"), temporal.time_from_ns, f"nanoseconds, whole microseconds only; {_DAY}"
    ),
    ("int64", TIME_PREFIX + "Timestamp"): _TIMESTAMP_MS,
    ("int64", TIME_PREFIX + "MicroTimestamp"): TypeMapping(
        pa.int64(), pa.timestamp("us"), temporal.timestamp_from_us, f"microseconds, no zone; {_YEARS}"
    ),
    ("int64", TIME_PREFIX + "NanoTimestamp"): TypeMapping(
        pa.int64(),
        pa.timestamp("ns"),
        temporal.timestamp_from_ns,
        "nanoseconds, no zone; years 1677 to 2262; the least and the greatest long stand for infinity: a fault",
    ),
    ("string", TIME_PREFIX + "ZonedTimestamp"): TypeMapping(
        _TEXT,
        pa.timestamp("us", "UTC"),
        temporal.parse_zoned_timestamp,
        f"ISO text with Z or offset; digits below the microsecond must be zero; {_YEARS}",
    ),
    ("string", TIME_PREFIX + "ZonedTime"): evolve(_WORDS, note="Iceberg has no time of day with a zone"),
    ("string", TIME_PREFIX + "IsoDate"): TypeMapping(
        _TEXT, pa.date32(), temporal.parse_iso_date, f"with or without a Z after it; {_YEARS}"
    ),
    ("string", TIME_PREFIX + "IsoTime"): TypeMapping(
        _TEXT, pa.time64("us"), temporal.parse_iso_time, f"with or without a Z after it; {_DAY}"
    ),
    ("string", TIME_PREFIX + "IsoTimestamp"): TypeMapping(
        _TEXT, pa.timestamp("us"), temporal.parse_iso_timestamp, f"with or without a Z after it; {_YEARS}"
    ),
    ("int32", TIME_PREFIX + "Year"): evolve(_INT32, note="the number of the year"),
    ("string", TIME_PREFIX + "Interval"): evolve(_WORDS, note="ISO 8601 duration, as sent"),
    ("int64", TIME_PREFIX + "MicroDuration"): evolve(
        _INT64, note="microseconds, a month being 30.4375 days at the source"
    ),
    ("double", TIME_PREFIX + "MicroDuration"): TypeMapping(
        pa.float64(), pa.float64(), None, "microseconds, as the long; the type that Oracle's page tells"
    ),
    ("int64", TIME_PREFIX + "NanoDuration"): evolve(_INT64, note="nanoseconds"),
    ("string", DATA_PREFIX + "Uuid"): TypeMapping(
        _TEXT, pa.uuid(), text_to_uuid, "36 characters with dashes, any case"
    ),
    ("string", JSON_TEXT): evolve(
        _WORDS, note="as sent, spaces and repeated keys included; variant in new columns with `nested-as-variant`"
    ),
    ("string", DATA_PREFIX + "Xml"): evolve(_WORDS, note="as sent"),
    ("string", DATA_PREFIX + "Enum"): evolve(_WORDS, note="the label"),
    ("string", DATA_PREFIX + "EnumSet"): evolve(_WORDS, note="labels joined by commas"),
    ("string", DATA_PREFIX + "Ltree"): evolve(_WORDS, note="the path"),
    ("string", DATA_PREFIX + "Tsvector"): evolve(_WORDS, note="as sent"),
    ("string", DATA_PREFIX + "TsVector"): evolve(_WORDS, note="as sent"),
    ("bytes", DATA_PREFIX + "Bits"): TypeMapping(_BYTES, _BYTES, None, "least significant byte first, as sent"),
}

_SCALED = pa.struct([pa.field("scale", pa.int32()), pa.field("value", pa.binary())])
STRUCT_TYPES: Mapping[str, TypeMapping] = {
    DATA_PREFIX + "VariableScaleDecimal": TypeMapping(
        _SCALED,
        pa.string(),
        variable_scale_decimal.to_text,
        "digits and point, no exponent; the scale differs per row",
        DATA_PREFIX + "VariableScaleDecimal",
    ),
}
"""Structs that stand for one value."""


def find_type(kind: str, name: str | None, parameters: Parameters) -> TypeMapping | None:
    """The row of a schema type, its semantic name and parameters; None for an unknown type.

    ValueError where the parameters are those of no decimal.
    """
    if kind == "bytes" and name == CONNECT_PREFIX + "Decimal":
        return _decimal_type(name, parameters)
    named = SEMANTIC_TYPES.get((_JSON_NAMES.get(kind, kind), name or ""))
    if named is not None:
        return evolve(named, name=name or kind)
    row = PRIMITIVE_TYPES.get(kind)
    unknown = f"{name} ({kind})" if name is not None and name.startswith(_KNOWN_PREFIXES) else None
    return None if row is None else evolve(row, name=kind, unknown=unknown)


def _decimal_type(name: str, parameters: Parameters) -> TypeMapping:
    """The decimal of Iceberg that has all the digits of the declared one, text where there is none."""
    scale = int(parameters.get("scale", "0"))
    precision = int(parameters.get("connect.decimal.precision", max(_MAX_PRECISION, scale)))
    if precision <= 0:
        raise ValueError(f"no decimal of precision {precision}")
    digits = max(precision, scale) if scale >= 0 else precision - scale
    if digits > _MAX_PRECISION:
        return TypeMapping(_BYTES, _TEXT, partial(bytes_to_number_text, scale=scale), DECIMAL_NOTE, name, scale)
    kind = pa.decimal128(digits, max(scale, 0))
    step: Convert = partial(bytes_to_decimal, kind=kind)
    if scale < 0:
        step = partial(_shift_decimal, wire=pa.decimal128(precision, scale), kind=kind)
    return TypeMapping(_BYTES, kind, step, DECIMAL_NOTE, name, scale)


def _shift_decimal(
    data: pa.BinaryArray, wire: pa.Decimal128Type, kind: pa.Decimal128Type
) -> tuple[pa.Array, Mask | None]:
    """Numbers that end in zeros which are not written: a negative scale."""
    decimals, bad = bytes_to_decimal(data, wire)
    return decimals.cast(kind), bad


DECIMAL_NOTE = (
    "decimal(precision or 38, scale), a value beyond the precision is a fault; string of all its digits where the "
    "declared precision or scale is beyond 38"
)
