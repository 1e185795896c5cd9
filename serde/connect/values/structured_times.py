"""structs of calendar and clock parts -> dates and times, or their ISO 8601 text; whole columns at a time.

Source: Debezium 3.7, `time.precision.mode=structured` (PostgreSQL, MySQL and MariaDB pages, "Temporal types"): parts
that a value does not have are null, `specialValue` stands for infinity, and MySQL's zero dates keep their zeros.
A fraction is `nanos`, or `picoseconds` in the newest versions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from serde.arrays import Ints, Mask, children, valid_mask
from serde.connect.values.temporal import MICROSECONDS, Converted

_DAY_S = 86_400
_UNITS = {"nanos": 9, "picoseconds": 12}
_MICRO_DIGITS = 6
_YEARS = (1, 9999)
_SPECIAL = {"POSITIVE_INFINITY": "infinity", "NEGATIVE_INFINITY": "-infinity"}


class _Parts:
    """The parts of a column of structs, null ones as zero."""

    def __init__(self, array: pa.StructArray) -> None:
        self.count, self.valid = len(array), valid_mask(array)
        names = [field.name for field in array.type]
        self._columns = dict(zip(names, children(array), strict=True))
        self.unit = next((name for name in _UNITS if name in self._columns), "nanos")
        self.digits = _UNITS[self.unit]
        special = self._columns.get("specialValue")
        self.special = pa.nulls(self.count, pa.string()) if special is None else special

    def number(self, name: str) -> Ints:
        column = self._columns.get(name)
        if column is None or not pa.types.is_integer(column.type):
            return np.zeros(self.count, np.int64)
        return np.asarray(column.cast(pa.int64()).fill_null(0), np.int64)

    def text(self, name: str) -> pa.Array:
        column = self._columns.get(name)
        return pa.nulls(self.count, pa.string()) if column is None else column

    @property
    def finite(self) -> Mask:
        return self.valid & np.asarray(self.special.is_null())


def _days(parts: _Parts) -> tuple[Ints, Mask]:
    """Days since 1970, and which are days of the calendar of Iceberg's promise."""
    year, month, day = (parts.number(name) for name in ("year", "month", "day"))
    good = parts.finite & (year >= _YEARS[0]) & (year <= _YEARS[1]) & (month >= 1) & (month <= 12) & (day >= 1)  # noqa: PLR2004
    months = np.where(good, (year - 1970) * 12 + month - 1, 0)
    first = months.astype("datetime64[M]")
    days = first.astype("datetime64[D]").astype(np.int64) + day - 1
    good &= days < (first + 1).astype("datetime64[D]").astype(np.int64)
    return np.where(good, days, 0), good


def _micros_of_day(parts: _Parts) -> tuple[Ints, Mask]:
    hour, minute, second = (parts.number(name) for name in ("hour", "minute", "second"))
    fraction, step = parts.number(parts.unit), 10 ** (parts.digits - _MICRO_DIGITS)
    good = (hour >= 0) & (hour < 24) & (minute >= 0) & (minute < 60) & (second >= 0) & (second < 60)  # noqa: PLR2004
    good &= (fraction >= 0) & (fraction < 10**parts.digits) & (fraction % step == 0) & parts.valid
    return ((hour * 60 + minute) * 60 + second) * 10**6 + fraction // step, good


def _assemble(numbers: Ints, good: Mask, valid: Mask, kind: pa.DataType) -> Converted:
    bad = valid & ~good
    return pa.array(numbers, kind, mask=~good), bad if bad.any() else None


def to_date(array: pa.StructArray) -> Converted:
    """StructuredDate -> date32; infinity, zero dates and years beyond 1 to 9999 do not fit."""
    parts = _Parts(array)
    days, good = _days(parts)
    return _assemble(days.astype(np.int32), good, parts.valid, pa.date32())


def to_time(array: pa.StructArray) -> Converted:
    """StructuredTime -> time64[us]; 24:00:00 and digits below the microsecond do not fit."""
    parts = _Parts(array)
    micros, good = _micros_of_day(parts)
    return _assemble(micros, good, parts.valid, pa.time64("us"))


def to_timestamp(array: pa.StructArray) -> Converted:
    """StructuredTimestamp -> timestamp[us]; as `to_date` and `to_time`."""
    parts = _Parts(array)
    (days, dated), (micros, timed) = _days(parts), _micros_of_day(parts)
    return _assemble(days * _DAY_S * 10**6 + micros, dated & timed, parts.valid, pa.timestamp("us"))


def to_zoned_timestamp(array: pa.StructArray) -> Converted:
    """StructuredZonedTimestamp -> timestamp[us, UTC]: the instant; its offset and zone are not kept."""
    parts = _Parts(array)
    (days, dated), (micros, timed) = _days(parts), _micros_of_day(parts)
    numbers = (days * _DAY_S - parts.number("offsetSeconds")) * 10**6 + micros
    inside = (numbers >= MICROSECONDS[0]) & (numbers <= MICROSECONDS[1])
    return _assemble(numbers, dated & timed & inside, parts.valid, pa.timestamp("us", "UTC"))


def _pad(numbers: Ints, width: int) -> pa.Array:
    return pc.utf8_lpad(pa.array(np.abs(numbers)).cast(pa.string()), width, "0")


def _sign(negative: Mask, word: str = "-", other: str = "") -> pa.Array:
    return pc.if_else(pa.array(negative), word, other)


def _join(*pieces: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, "")


def _date_words(parts: _Parts) -> pa.Array:
    year = parts.number("year")
    sign = pc.if_else(pa.array(year > _YEARS[1]), "+", _sign(year < 0))
    day = _join("-", _pad(parts.number("month"), 2), "-", _pad(parts.number("day"), 2))
    return _join(sign, _pad(year, 4), day)


def _time_words(parts: _Parts) -> pa.Array:
    hour, minute, second = (_pad(parts.number(name), 2) for name in ("hour", "minute", "second"))
    return _join(hour, ":", minute, ":", second, ".", _pad(parts.number(parts.unit), parts.digits))


def _zone_words(parts: _Parts) -> pa.Array:
    offset = parts.number("offsetSeconds")
    size = np.abs(offset)
    seconds = pc.if_else(pa.array(size % 60 == 0), "", _join(":", _pad(size % 60, 2)))
    clock = _join(_sign(offset < 0, "-", "+"), _pad(size // 3600, 2), ":", _pad(size // 60 % 60, 2), seconds)
    zone = _join("[", parts.text("zoneId"), "]").fill_null("")
    return _join(pc.if_else(pa.array(offset == 0), "Z", clock), zone)


def _finish(parts: _Parts, text: pa.Array) -> Converted:
    """The texts with the words for infinity; what is special in another way means nothing."""
    texts = pc.if_else(parts.special.is_null(), text, pa.scalar(None, pa.string()))
    for word, written in _SPECIAL.items():
        texts = pc.if_else(pc.equal(parts.special, word).fill_null(False), written, texts)
    texts = pc.if_else(pa.array(parts.valid), texts, pa.scalar(None, pa.string()))
    bad = parts.valid & ~valid_mask(texts)
    return texts, bad if bad.any() else None


def date_text(array: pa.StructArray) -> Converted:
    """StructuredDate -> its date, any year, zeros where MySQL has them, or infinity."""
    parts = _Parts(array)
    return _finish(parts, _date_words(parts))


def time_text(array: pa.StructArray) -> Converted:
    """StructuredTime -> hh:mm:ss and all digits of the fraction."""
    parts = _Parts(array)
    return _finish(parts, _time_words(parts))


def timestamp_text(array: pa.StructArray) -> Converted:
    """StructuredTimestamp -> date, T, time."""
    parts = _Parts(array)
    return _finish(parts, _join(_date_words(parts), "T", _time_words(parts)))


def zoned_time_text(array: pa.StructArray) -> Converted:
    """StructuredZonedTime -> time and offset, as at the source."""
    parts = _Parts(array)
    return _finish(parts, _join(_time_words(parts), _zone_words(parts)))


def zoned_timestamp_text(array: pa.StructArray) -> Converted:
    """StructuredZonedTimestamp -> date, T, time, offset, and the zone in brackets where there is one."""
    parts = _Parts(array)
    return _finish(parts, _join(_date_words(parts), "T", _time_words(parts), _zone_words(parts)))


def duration_text(array: pa.StructArray) -> Converted:
    """StructuredDuration -> ISO 8601: P1Y2M3DT4H5M6.78S, each part with its own sign; none at all is P0Y0M0DT0H0M0S."""
    parts = _Parts(array)
    pieces: list[pa.Array | str] = ["P"]
    for name, letter in (("years", "Y"), ("months", "M"), ("days", "DT"), ("hours", "H"), ("minutes", "M")):
        number = parts.number(name)
        pieces += [_sign(number < 0), _pad(number, 1), letter]
    seconds, fraction, whole = parts.number("seconds"), parts.number(parts.unit), 10**parts.digits
    # A fraction whose sign is not the seconds' is made to have it.
    borrow = np.where((seconds < 0) & (fraction > 0), 1, np.where((seconds > 0) & (fraction < 0), -1, 0))
    seconds, fraction = seconds + borrow, fraction - borrow * whole
    digits = pc.utf8_rtrim(_join(".", _pad(fraction, parts.digits)), "0")
    pieces += [_sign((seconds < 0) | (fraction < 0)), _pad(seconds, 1), pc.utf8_rtrim(digits, "."), "S"]
    return _finish(parts, _join(*pieces))


@frozen
class StructuredType:
    """What a struct of parts becomes: its type and step, and the step to text; `note` for readers."""

    logical: pa.DataType
    step: Callable[[pa.StructArray], Converted]
    text: Callable[[pa.StructArray], Converted]
    note: str


_NO_FINER = "digits below the microsecond must be zero"
STRUCTURED_TYPES = {
    "io.debezium.time.StructuredDate": StructuredType(
        pa.date32(), to_date, date_text, "years 0001 to 9999; infinity and zero dates are a fault"
    ),
    "io.debezium.time.StructuredTime": StructuredType(
        pa.time64("us"), to_time, time_text, f"{_NO_FINER}; 24:00:00 is a fault"
    ),
    "io.debezium.time.StructuredTimestamp": StructuredType(
        pa.timestamp("us"),
        to_timestamp,
        timestamp_text,
        f"{_NO_FINER}; years 0001 to 9999; infinity and zero dates are a fault",
    ),
    "io.debezium.time.StructuredZonedTimestamp": StructuredType(
        pa.timestamp("us", "UTC"),
        to_zoned_timestamp,
        zoned_timestamp_text,
        f"the instant, without its offset; {_NO_FINER}; years 0001 to 9999; infinity is a fault",
    ),
    "io.debezium.time.StructuredZonedTime": StructuredType(
        pa.string(), zoned_time_text, zoned_time_text, "with its offset, as Iceberg has no time of day with a zone"
    ),
    "io.debezium.time.StructuredDuration": StructuredType(
        pa.string(), duration_text, duration_text, "ISO 8601 duration, each part with its sign"
    ),
}
"""Schema name -> what it becomes."""
