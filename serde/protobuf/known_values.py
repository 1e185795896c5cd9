"""messages that stand for one value -> that value: Google's timestamps, dates and times of day, Confluent's decimals.

As Connect's converter reads them, with the digits that it cuts off: a timestamp's microseconds, and as text its
nanoseconds. What a column cannot hold is reported, never rounded.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Ints, Mask, valid_mask
from serde.connect.schema_node import Convert, Leaf, chain
from serde.connect.type_table import CONNECT_PREFIX, TIME_PREFIX, Parameters, find_type
from serde.connect.values import temporal
from serde.connect.values.iso_text import TEXT_CONVERSIONS
from serde.connect.values.number_text import bytes_to_number_text
from serde.connect.values.variable_scale_decimal import to_text
from serde.protobuf.schemas.known_types import DATE, DECIMAL, TIME_OF_DAY, TIMESTAMP

_CLOCK = pa.struct([("hours", pa.int32()), ("minutes", pa.int32()), ("seconds", pa.int32()), ("nanos", pa.int32())])
_CALENDAR = pa.struct([("year", pa.int32()), ("month", pa.int32()), ("day", pa.int32())])
_INSTANT = pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])
_NUMBER = pa.struct([("value", pa.binary()), ("precision", pa.int64()), ("scale", pa.int32())])
_MAX_SECONDS = 253_402_300_800
_NANOS, _MICRO = 1_000_000_000, 1000
_MONTHS, _YEARS = 12, 9999


def _identity(value: object) -> object:
    return value


def find_known(name: str, parameters: Parameters) -> Leaf | None:
    """Return the leaf of a message that stands for one value, by its full name; None for any other message."""
    words: Convert | None
    match name:
        case _ if name == TIMESTAMP:
            words = _make_words(_floor_micros, TIME_PREFIX + "MicroTimestamp")
            step = chain(_to_whole_micros(_floor_micros), temporal.timestamp_from_us)
            return _leaf(_INSTANT, "Timestamp", step, words)
        case _ if name == TIME_OF_DAY:
            words = _make_words(_floor_day_micros, TIME_PREFIX + "MicroTime")
            return _leaf(_CLOCK, "Time", chain(_to_whole_micros(_floor_day_micros), temporal.time_from_us), words)
        case _ if name == DATE:
            words = chain(_to_days, TEXT_CONVERSIONS[CONNECT_PREFIX + "Date"])
            return _leaf(_CALENDAR, "Date", chain(_to_days, temporal.date_from_days), words)
        case _ if name == DECIMAL:
            return _decimal_leaf(parameters)
    return None


def _leaf(wire: pa.StructType, label: str, step: Convert | None, words: Convert | None) -> Leaf:
    assert step is not None
    kind = step(pa.array([], wire))[0].type
    return Leaf(wire, kind, CONNECT_PREFIX + label, _identity, step, words=words)


def _numbers(array: pa.StructArray) -> list[Ints]:
    """The parts, null ones as zero."""
    return [column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64) for column in array.flatten()]


def _give(array: pa.StructArray, numbers: Ints, bad: Mask, kind: pa.DataType) -> tuple[pa.Array, Mask | None]:
    valid = valid_mask(array)
    bad &= valid
    numbers_column = pa.array(np.where(bad, 0, numbers), pa.int64(), mask=bad | ~valid).cast(kind)
    return numbers_column, bad if bad.any() else None


def _finer_digits(array: pa.StructArray) -> Ints:
    """The nanoseconds below the microsecond."""
    finer: Ints = array.field("nanos").fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64) % _MICRO
    return np.where(valid_mask(array), finer, 0)


def _floor_micros(array: pa.StructArray) -> tuple[pa.Array, Mask | None]:
    seconds, nanos = _numbers(array)
    bad = (np.abs(seconds) > _MAX_SECONDS) | (nanos < 0) | (nanos >= _NANOS)
    return _give(array, np.where(bad, 0, seconds) * 1_000_000 + nanos // _MICRO, bad, pa.int64())


def _floor_day_micros(array: pa.StructArray) -> tuple[pa.Array, Mask | None]:
    hours, minutes, seconds, nanos = _numbers(array)
    bad = (nanos < 0) | (nanos >= _NANOS)
    for part, limit in ((hours, 24), (minutes, 59), (seconds, 59)):
        bad |= (part < 0) | (part > limit)
    return _give(array, ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + nanos // _MICRO, bad, pa.int64())


def _to_whole_micros(floor: Convert) -> Convert:
    """The step that takes no value with digits below the microsecond."""

    def step(array: pa.Array) -> tuple[pa.Array, Mask | None]:
        numbers, bad = floor(array)
        finer = _finer_digits(array) != 0
        if not finer.any():
            return numbers, bad
        kept = pc.if_else(pa.array(finer), pa.scalar(None, numbers.type), numbers)
        return kept, finer if bad is None else finer | bad

    return step


def _make_words(floor: Convert, like: str) -> Convert:
    """The step to text: six digits behind the point, nine where a value has as many."""
    to_text = chain(floor, TEXT_CONVERSIONS[like])
    assert to_text is not None

    def step(array: pa.Array) -> tuple[pa.Array, Mask | None]:
        text, bad = to_text(array)
        finer = _finer_digits(array)
        if not finer.any():
            return text, bad
        digits = pc.utf8_lpad(pa.array(finer).cast(pa.string()), 3, "0")
        return pc.if_else(pa.array(finer != 0), pc.binary_join_element_wise(text, digits, ""), text), bad

    return step


def _to_days(array: pa.StructArray) -> tuple[pa.Array, Mask | None]:
    year, month, day = _numbers(array)
    bad = (year < 1) | (year > _YEARS) | (month < 1) | (month > _MONTHS) | (day < 1)
    months = np.where(bad, 0, (year - 1970) * _MONTHS + month - 1)
    first = months.astype("datetime64[M]")
    days = first.astype("datetime64[D]").astype(np.int64)
    bad |= day > (first + 1).astype("datetime64[D]").astype(np.int64) - days
    return _give(array, days + day - 1, bad, pa.int32())


def _decimal_leaf(parameters: Parameters) -> Leaf:
    """A decimal of the digits that its schema names; else text: every value has a scale of its own."""
    label = CONNECT_PREFIX + "Decimal"
    if "scale" not in parameters:
        return Leaf(_NUMBER, pa.string(), label, _identity, _to_number_text)
    scale = int(parameters["scale"])
    connect_parameters = {"scale": str(scale)}
    if parameters.get("precision"):
        connect_parameters["connect.decimal.precision"] = parameters["precision"]
    row = find_type("bytes", label, connect_parameters)
    assert row is not None
    unscaled = partial(_to_unscaled, scale=scale)
    words = partial(bytes_to_number_text, scale=scale)
    return Leaf(_NUMBER, row.logical, label, _identity, chain(unscaled, row.step), text=chain(unscaled, words))


def _to_number_text(array: pa.StructArray) -> tuple[pa.Array, Mask | None]:
    value, _, scale = array.flatten()
    mask = pa.array(~valid_mask(array)) if array.null_count else None
    return to_text(pa.StructArray.from_arrays([scale, value], ["scale", "value"], mask=mask))


def _to_unscaled(array: pa.StructArray, scale: int) -> tuple[pa.Array, Mask | None]:
    """The bytes of each number; one that has another scale than its schema cannot be told by them."""
    value, _, scales = array.flatten()
    valid = valid_mask(array)
    bad = valid & (scales.fill_null(0).to_numpy(zero_copy_only=False) != scale)
    if not bad.any():
        return value, None
    return pc.if_else(pa.array(bad), pa.scalar(None, pa.binary()), value), bad
