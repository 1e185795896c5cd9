"""Connect schema -> node: the one table of types. A schema name that is not here counts as its primitive type.

Sources: Kafka's JsonConverter (org.apache.kafka.connect.data.*), Debezium 3.7 (io.debezium.time.*, io.debezium.data.*).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde import bits, scalars, temporal
from serde.bits import Mask
from serde.faults import Unfit
from serde.node import Convert, Leaf, Node, Read

Parameters = Mapping[str, str]
_CONNECT = "org.apache.kafka.connect.data."
_TIME = "io.debezium.time."
_DATA = "io.debezium.data."
_MAX_PRECISION = 38
_INT_BITS = 32  # Iceberg has no smaller integer
_MOST_SCALE = 20_000  # PostgreSQL's numeric ends at 16383 digits behind the point


def _small(array: pa.Array) -> tuple[pa.Array, Mask | None]:
    return array.cast(pa.int32()), None


def _single(array: pa.Array) -> tuple[pa.Array, Mask | None]:
    """float64 -> float32 as Java does it; a finite number that only fits a double is bad."""
    made = array.cast(pa.float32(), safe=False)
    lost = pc.and_(pc.is_finite(array), pc.invert(pc.is_finite(made))).fill_null(False)
    bad = lost.to_numpy(zero_copy_only=False)
    return made, bad if bad.any() else None


def _integer(label: str, size: int) -> Leaf:
    wire = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[size]
    narrow = size < _INT_BITS
    return Leaf(wire, pa.int32() if narrow else wire, label, scalars.integer(label, size), _small if narrow else None)


PRIMITIVES: Mapping[str, Leaf] = {
    "int8": _integer("int8", 8),
    "int16": _integer("int16", 16),
    "int32": _integer("int32", 32),
    "int64": _integer("int64", 64),
    "float": Leaf(pa.float64(), pa.float32(), "float", scalars.real("float"), _single),
    "float32": Leaf(pa.float64(), pa.float32(), "float", scalars.real("float"), _single),
    "double": Leaf(pa.float64(), pa.float64(), "double", scalars.real("double")),
    "float64": Leaf(pa.float64(), pa.float64(), "double", scalars.real("double")),
    "boolean": Leaf(pa.bool_(), pa.bool_(), "boolean", scalars.boolean("boolean")),
    "string": Leaf(pa.string(), pa.string(), "string", scalars.string("string")),
    "bytes": Leaf(pa.string(), pa.binary(), "bytes", scalars.string("bytes"), bits.binary),
}


def _of_number(size: int, logical: pa.DataType, convert: Convert | None) -> Callable[[str], Leaf]:
    wire = pa.int32() if size == _INT_BITS else pa.int64()
    return lambda label: Leaf(wire, logical, label, scalars.integer(label, size), convert)


def _of_text(logical: pa.DataType, convert: Convert | None) -> Callable[[str], Leaf]:
    return lambda label: Leaf(pa.string(), logical, label, scalars.string(label), convert)


_DATE = _of_number(32, pa.date32(), temporal.days)
_TIME_MS = _of_number(32, pa.time64("us"), temporal.time_ms)
_TIMESTAMP_MS = _of_number(64, pa.timestamp("us"), temporal.timestamp_ms)
_TEXT = _of_text(pa.string(), None)

NAMED: Mapping[tuple[str, str], Callable[[str], Leaf]] = {
    ("int32", _CONNECT + "Date"): _DATE,
    ("int32", _CONNECT + "Time"): _TIME_MS,
    ("int64", _CONNECT + "Timestamp"): _TIMESTAMP_MS,
    ("int32", _TIME + "Date"): _DATE,
    ("int32", _TIME + "Time"): _TIME_MS,
    ("int64", _TIME + "MicroTime"): _of_number(64, pa.time64("us"), temporal.time_us),
    ("int64", _TIME + "NanoTime"): _of_number(64, pa.time64("us"), temporal.time_ns),
    ("int64", _TIME + "Timestamp"): _TIMESTAMP_MS,
    ("int64", _TIME + "MicroTimestamp"): _of_number(64, pa.timestamp("us"), temporal.timestamp_us),
    ("int64", _TIME + "NanoTimestamp"): _of_number(64, pa.timestamp("ns"), temporal.timestamp_ns),
    ("string", _TIME + "ZonedTimestamp"): _of_text(pa.timestamp("us", "UTC"), temporal.zoned_timestamp),
    ("string", _TIME + "ZonedTime"): _TEXT,
    ("string", _TIME + "IsoDate"): _of_text(pa.date32(), temporal.iso_date),
    ("string", _TIME + "IsoTime"): _of_text(pa.time64("us"), temporal.iso_time),
    ("string", _TIME + "IsoTimestamp"): _of_text(pa.timestamp("us"), temporal.iso_timestamp),
    ("string", _DATA + "Uuid"): _of_text(pa.uuid(), bits.uuid),
    ("string", _DATA + "Json"): _TEXT,
    ("string", _DATA + "Xml"): _TEXT,
    ("string", _DATA + "Enum"): _TEXT,
    ("string", _DATA + "EnumSet"): _TEXT,
    ("string", _DATA + "Ltree"): _TEXT,
    ("bytes", _DATA + "Bits"): _of_text(pa.binary(), bits.binary),
}


def leaf(kind: str, name: str | None, parameters: Parameters) -> Leaf | None:
    """The leaf of a schema type, its semantic name and parameters; None for an unknown type."""
    if kind == "bytes" and name == _CONNECT + "Decimal":
        return _decimal(name, parameters)
    made = NAMED.get((kind, name or ""))
    return made(name or kind) if made else PRIMITIVES.get(kind)


def _decimal(label: str, parameters: Parameters) -> Leaf:
    """decimal128(precision or 38, scale); ValueError where Arrow and Iceberg have no such type."""
    scale = int(parameters.get("scale", "0"))
    precision = int(parameters.get("connect.decimal.precision", _MAX_PRECISION))
    if not 0 < precision <= _MAX_PRECISION or not 0 <= scale <= precision:
        raise ValueError(f"no decimal of precision {precision} and scale {scale}")
    kind = pa.decimal128(precision, scale)
    return Leaf(pa.string(), kind, label, scalars.decimal(label, scale), partial(bits.decimal, kind=kind), exact=True)


def structure(name: str | None) -> Node | None:
    """The leaf of a struct that stands for one value, None for any other struct."""
    return _VARIABLE if name == _DATA + "VariableScaleDecimal" else None


def _variable_text(array: pa.Array) -> tuple[pa.Array, Mask | None]:
    """struct {scale, base64 value} -> the number as plain text. Python per value: the scale differs per row."""
    data, bounds, bad = bits.unbase64(array.field("value"))
    whole = bits.valid_of(array)
    there = (
        whole & bits.valid_of(array.field("scale")) & bits.valid_of(array.field("value")) & ~bad & (np.diff(bounds) > 0)
    )
    raw, scales = data.tobytes(), array.field("scale").to_pylist()
    values: list[str | None] = [None] * len(array)
    for index in np.flatnonzero(there).tolist():
        unscaled = int.from_bytes(raw[int(bounds[index]) : int(bounds[index + 1])], "big", signed=True)
        values[index] = _plain(unscaled, scales[index])
    made = pa.array(values, pa.string())
    bad = whole & ~bits.valid_of(made)
    return made, bad if bad.any() else None


def _plain(unscaled: int, scale: int) -> str | None:
    """unscaled * 10 ** -scale without an exponent; None for a scale that no database has."""
    if abs(scale) > _MOST_SCALE or abs(unscaled) >= 1 << 3 * _MOST_SCALE:
        return None
    digits = str(Decimal(abs(unscaled)).to_integral_value()) if abs(unscaled) < 10**20 else _long_text(abs(unscaled))
    if scale <= 0:
        digits = digits + "0" * -scale if unscaled else "0"
    else:
        digits = digits.rjust(scale + 1, "0")
        digits = f"{digits[:-scale]}.{digits[-scale:]}"
    return f"-{digits}" if unscaled < 0 else digits


def _long_text(number: int) -> str:
    """Digits of a number of any length (Python's own limit is 4300 digits), most significant first."""
    out: list[str] = []
    while number:
        number, rest = divmod(number, 10**4000)
        out.append(str(rest).rjust(4000, "0") if number else str(rest))
    return "".join(reversed(out))


def _variable(label: str) -> Leaf:
    scale, text = scalars.integer(label, 32), scalars.string(label)
    wire = pa.struct([pa.field("scale", pa.int32()), pa.field("value", pa.string())])

    def read(value: object) -> object:
        if not isinstance(value, dict) or value.get("scale") is None or value.get("value") is None:
            raise Unfit(f"neither scale nor value ({label})")
        return {"scale": scale(value["scale"]), "value": text(value["value"])}

    return Leaf(wire, pa.string(), label, read, _variable_text)


_VARIABLE: Leaf = _variable(_DATA + "VariableScaleDecimal")
_READ: Read = scalars.nothing
_ANY_TEXT = Leaf(pa.string(), pa.string(), "string", scalars.any_text("string"))


def plain(kind: pa.DataType) -> Leaf:
    """The leaf of a wire type that was found without a schema block."""
    if pa.types.is_null(kind):
        return Leaf(kind, kind, "null", _READ)
    if pa.types.is_string(kind):
        return _ANY_TEXT
    name = {pa.int64(): "int64", pa.float64(): "double", pa.bool_(): "boolean"}[kind]
    return PRIMITIVES[name]
