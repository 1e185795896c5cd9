"""wire numbers of dates and times -> ISO 8601 text, for what Iceberg's types have no room for.

PostgreSQL has 24:00:00, years before Christ and beyond 9999, and infinity; MySQL times below 0 and beyond a day. A
column that is to hold them is text (`connect.text_columns`).
Sources: Debezium 3.5 and 3.7 (the numbers that stand for infinity), recorded events in tests/fixtures; years are
written as ISO 8601 and Java do: -0043 is 44 BC, years beyond 9999 have a plus sign.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Mask, place_others, valid_mask
from serde.connect.schema_node import Convert
from serde.connect.type_table import CONNECT_PREFIX, TIME_PREFIX
from serde.connect.values import temporal

_INFINITE_DAYS = {2146033979: "infinity", -2147472692: "infinity", -2147472691: "-infinity"}
_INFINITE_TIMESTAMPS = {
    2**63 - 1: "infinity",
    -(2**63): "-infinity",
    9223372036825200000: "infinity",
    -9223372036832400000: "-infinity",
}
_DAY_S = 86_400
_MIDNIGHT = "24:00:00"
Text = Callable[[int], str | None]
"""A number that is out of a type's range -> its text, None where it means nothing."""


def format_date(days: int) -> str:
    """Days since 1970 -> the date of the proleptic Gregorian calendar."""
    shifted = days + 719_468
    era, of_era = divmod(shifted, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9  # noqa: PLR2004 - March is 0
    year = year_of_era + era * 400 + (month <= 2)  # noqa: PLR2004
    sign = "-" if year < 0 else "+" if year > 9999 else ""  # noqa: PLR2004
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def _format_day(number: int) -> str | None:
    return _INFINITE_DAYS.get(number) or format_date(number)


def _timestamp_format(per_second: int, digits: int) -> Text:
    def text(number: int) -> str | None:
        if number in _INFINITE_TIMESTAMPS:
            return _INFINITE_TIMESTAMPS[number]
        seconds, rest = divmod(number, per_second)
        days, of_day = divmod(seconds, _DAY_S)
        clock = f"{of_day // 3600:02d}:{of_day // 60 % 60:02d}:{of_day % 60:02d}"
        return f"{format_date(days)}T{clock}.{rest:0{digits}d}"

    return text


def _time_format(per_second: int, digits: int) -> Text:
    """MySQL's TIME is a span of time: it may be negative, and has more hours than a day."""

    def text(number: int) -> str | None:
        if number == _DAY_S * per_second:
            return _MIDNIGHT
        seconds, rest = divmod(abs(number), per_second)
        sign = "-" if number < 0 else ""
        return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:0{digits}d}"

    return text


def _text_conversion(step: Convert, rest: Text, view: pa.DataType | None = None) -> Convert:
    """The typed step as text, and the values that it has no room for one by one.

    view: reads the numbers as this type, whose text has as many digits as the unit.
    """

    def convert(array: pa.Array) -> tuple[pa.Array, Mask | None]:
        converted, bad = step(array)
        if view is not None:
            # Connect's Time may come as a long.
            width = pa.int32() if pa.types.is_time32(view) else pa.int64()
            converted = pc.if_else(converted.is_valid(), array, None).cast(width).view(view)
        text = pc.replace_substring(converted.cast(pa.string()), " ", "T")
        if bad is None:
            return text, None
        at = np.flatnonzero(bad)
        words = [rest(number) for number in array.take(pa.array(at)).to_pylist()]
        text = pa.concat_arrays([text, pa.array(words, pa.string())]).take(place_others(len(text), at))
        still = valid_mask(array) & ~valid_mask(text)
        return text, still if still.any() else None

    return convert


_DAYS = _text_conversion(temporal.date_from_days, _format_day)
_TIME_MS = _text_conversion(temporal.time_from_ms, _time_format(1000, 3), pa.time32("ms"))
_TIMESTAMP_MS = _text_conversion(temporal.timestamp_from_ms, _timestamp_format(1000, 3), pa.timestamp("ms"))
TEXT_CONVERSIONS: Mapping[str, Convert | None] = {
    CONNECT_PREFIX + "Date": _DAYS,
    CONNECT_PREFIX + "Time": _TIME_MS,
    CONNECT_PREFIX + "Timestamp": _TIMESTAMP_MS,
    TIME_PREFIX + "Date": _DAYS,
    TIME_PREFIX + "Time": _TIME_MS,
    TIME_PREFIX + "MicroTime": _text_conversion(temporal.time_from_us, _time_format(1_000_000, 6)),
    TIME_PREFIX + "NanoTime": _text_conversion(temporal.time_from_ns, _time_format(1_000_000_000, 9), pa.time64("ns")),
    TIME_PREFIX + "Timestamp": _TIMESTAMP_MS,
    TIME_PREFIX + "MicroTimestamp": _text_conversion(temporal.timestamp_from_us, _timestamp_format(1_000_000, 6)),
    TIME_PREFIX + "NanoTimestamp": _text_conversion(temporal.timestamp_from_ns, _timestamp_format(1_000_000_000, 9)),
    # These are text already.
    TIME_PREFIX + "ZonedTimestamp": None,
    TIME_PREFIX + "IsoDate": None,
    TIME_PREFIX + "IsoTime": None,
    TIME_PREFIX + "IsoTimestamp": None,
}
"""Schema name -> how its values become text."""
