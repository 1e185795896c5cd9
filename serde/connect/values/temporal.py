"""wire numbers and texts -> dates and times: each rule of Connect's and Debezium's temporal types, vectorised.

Years 0001 to 9999 are what the tables promise to hold; infinity (sent as the largest or smallest number, or as a
word) and dates before Christ are outside and reported, never bent. 24:00:00 is no time of day and is reported too.
"""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Mask, place_others, valid_mask

_DAYS = (-719162, 2932896)
_MS = (_DAYS[0] * 86_400_000, (_DAYS[1] + 1) * 86_400_000 - 1)
MICROSECONDS = (_MS[0] * 1000, _MS[1] * 1000 + 999)
"""The first and the last that tables promise to hold, since 1970."""

_NS = (-(2**63) + 1, 2**63 - 2)
_DAY_MS = (0, 86_400_000 - 1)
_DAY_US = (0, 86_400_000_000 - 1)
_DAY_NS = (0, 86_400_000_000_000 - 1)

Converted = tuple[pa.Array, Mask | None]
_ZONED = r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)$"
_SECONDS_OFFSET = r"^(?P<moment>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?P<rest>\.\d{1,9})?(?P<offset>[+-]\d\d:\d\d:\d\d)$"
_SPACED = r"^(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d{1,9})?)(Z|[+-]\d\d(?::\d\d)?)?$"
_LOCAL = r"^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?$"


def _null_outside(array: pa.Array, bounds: tuple[int, int]) -> tuple[pa.Array, Mask | None]:
    """Nulls what lies outside the bounds and says where."""
    if not len(array) or array.null_count == len(array):
        return array, None
    ends = pc.min_max(array).as_py()
    if ends["min"] >= bounds[0] and ends["max"] <= bounds[1]:
        return array, None
    numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
    return _null_where(array, valid_mask(array) & ((numbers < bounds[0]) | (numbers > bounds[1])))


def _null_where(array: pa.Array, bad: Mask) -> tuple[pa.Array, Mask | None]:
    if not bad.any():
        return array, None
    return pc.if_else(pa.array(bad), pa.scalar(None, array.type), array), bad


def date_from_days(array: pa.Array) -> Converted:
    """int32 days since 1970-01-01 -> date32."""
    kept, bad = _null_outside(array, _DAYS)
    return kept.view(pa.date32()), bad


def timestamp_from_ms(array: pa.Array) -> Converted:
    """int64 ms since the epoch -> timestamp[us]."""
    kept, bad = _null_outside(array, _MS)
    return pc.multiply(kept, 1000).view(pa.timestamp("us")), bad


def timestamp_from_us(array: pa.Array) -> Converted:
    """int64 us since the epoch -> timestamp[us]."""
    kept, bad = _null_outside(array, MICROSECONDS)
    return kept.view(pa.timestamp("us")), bad


def timestamp_from_ns(array: pa.Array) -> Converted:
    """int64 ns since the epoch -> timestamp[ns]; the two ends of the range stand for infinity."""
    kept, bad = _null_outside(array, _NS)
    return kept.view(pa.timestamp("ns")), bad


def time_from_ms(array: pa.Array) -> Converted:
    """int32 ms since midnight -> time64[us]."""
    kept, bad = _null_outside(array, _DAY_MS)
    return pc.multiply(kept.cast(pa.int64()), 1000).view(pa.time64("us")), bad


def time_from_us(array: pa.Array) -> Converted:
    """int64 us since midnight -> time64[us]."""
    kept, bad = _null_outside(array, _DAY_US)
    return kept.view(pa.time64("us")), bad


def time_from_ns(array: pa.Array) -> Converted:
    """int64 ns since midnight -> time64[us], only where no digit is lost."""
    kept, outside = _null_outside(array, _DAY_NS)
    numbers = kept.fill_null(0).to_numpy(zero_copy_only=False)
    kept, finer = _null_where(kept, numbers % 1000 != 0)
    return pc.divide(kept, 1000).view(pa.time64("us")), _merge_masks(outside, finer)


def _merge_masks(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other


def parse_zoned_timestamp(text: pa.Array) -> Converted:
    """ISO text with Z or offset -> timestamp[us, UTC]; Vitess's TIMESTAMP of before 3.6, without any, is in UTC."""
    return _parse_column(_spell_as_iso(text), pa.timestamp("us", "UTC"), _ZONED)


def _spell_as_iso(text: pa.Array) -> pa.Array:
    """The texts that a database wrote (2020-02-13 01:02:03, CockroachDB's with +00 behind) as ISO has them."""
    spaced = pc.match_substring_regex(text, _SPACED)
    if pc.any(spaced).as_py() is not True:
        return text
    moments = pc.replace_substring_regex(text, _SPACED, r"\1T\2\3Z")
    hours = pc.replace_substring_regex(moments, r"([+-]\d\d)Z$", r"\1:00")
    return pc.if_else(spaced, pc.replace_substring_regex(hours, r"([+-]\d\d:\d\d|Z)Z$", r"\1"), text)


def parse_iso_timestamp(text: pa.Array) -> Converted:
    """ISO text without zone, or with the Z that Debezium appends -> timestamp[us]."""
    return _parse_column(_strip_zone(text), pa.timestamp("us"), _LOCAL)


def parse_iso_date(text: pa.Array) -> Converted:
    """2017-09-15 or 2017-09-15Z -> date32."""
    dates, bad = _parse_column(pc.binary_join_element_wise(_strip_zone(text), "T00:00", ""), pa.timestamp("us"), _LOCAL)
    return dates.cast(pa.date32()), bad


def parse_iso_time(text: pa.Array) -> Converted:
    """04:05:11.789 or 04:05:11.789Z -> time64[us]."""
    times, bad = _parse_column(
        pc.binary_join_element_wise("1970-01-01", _strip_zone(text), "T"), pa.timestamp("us"), _LOCAL
    )
    return times.cast(pa.int64()).view(pa.time64("us")), bad


def parse_local_time(text: pa.Array) -> Converted:
    """04:05:11.789, without any Z -> time64[us]."""
    zoned = valid_mask(text) & pc.ends_with(text, "Z").fill_null(False).to_numpy(zero_copy_only=False)
    times, bad = parse_iso_time(_null_where(text, zoned)[0])
    return times, _merge_masks(bad, zoned if zoned.any() else None)


def _strip_zone(text: pa.Array) -> pa.Array:
    return pc.utf8_rtrim(text, "Z")


def _parse_column(text: pa.Array, kind: pa.DataType, shape: str) -> Converted:
    """Casts the column at once; only when that fails looks for the values that do not fit."""
    try:
        parsed, bad = text.cast(kind), None
    except pa.ArrowInvalid:
        parsed, bad = _parse_valid(text, kind, shape)
    numbers, outside = _null_outside(parsed.view(pa.int64()), MICROSECONDS)
    return numbers.view(kind), _merge_masks(bad, outside)


def _parse_valid(text: pa.Array, kind: pa.DataType, shape: str) -> Converted:
    """The column with every value that is no time of this kind set to null, zeros below the microsecond and offsets
    with seconds allowed.

    What Arrow takes in another shape (a date alone) it takes here too: a value does not depend on those beside it.
    """
    text = drop_finer_zeros(shift_offset_seconds(text))
    fits = pc.match_substring_regex(text, shape).fill_null(False).to_numpy(zero_copy_only=False)
    kept, _ = _null_where(text, ~fits)
    try:
        parsed = kept.cast(kind)
    except pa.ArrowInvalid:
        parsed = _parse_each(kept, kind)
    others = np.flatnonzero(valid_mask(text) & ~fits)
    if len(others):
        single = _parse_each(text.take(pa.array(others)), kind)
        parsed = pa.concat_arrays([parsed, single]).take(place_others(len(parsed), others))
    bad = valid_mask(text) & ~valid_mask(parsed)
    return parsed, bad if bad.any() else None


def _parse_each(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Each text alone, null where it is no time of this kind; one that comes again is parsed once."""
    coded = text.dictionary_encode()
    return pa.array([_parse_one(value, kind) for value in coded.dictionary], kind).take(coded.indices)


def drop_finer_zeros(text: pa.StringArray) -> pa.StringArray:
    """The texts without zeros below the microsecond, which Arrow would not read; other texts as they are."""
    return pc.replace_substring_regex(text, r"(\.\d{6})0{1,3}(Z|[+-]\d\d:\d\d)?$", r"\1\2")


def shift_offset_seconds(text: pa.StringArray) -> pa.StringArray:
    """The texts whose offset has seconds, which Arrow would not read, at offset zero; other texts as they are.

    Local mean time, which was in use before there were zones, has such offsets. Cost: Python looks at each such text.
    """
    found = np.flatnonzero(pc.match_substring_regex(text, _SECONDS_OFFSET).fill_null(False))
    if not len(found):
        return text
    shifted = [
        _shift_to_zero(**parts) for parts in pc.extract_regex(text.take(pa.array(found)), _SECONDS_OFFSET).to_pylist()
    ]
    return pa.concat_arrays([text, pa.array(shifted, text.type)]).take(place_others(len(text), found))


def _shift_to_zero(moment: str, rest: str, offset: str) -> str:
    try:
        at = datetime.fromisoformat(moment + offset).astimezone(UTC)
    except (ValueError, OverflowError):
        return moment + rest + offset
    return f"{at.replace(tzinfo=None).isoformat()}{rest}Z"


def null_beyond_years(moments: pa.Array) -> Converted:
    """Dates, or timestamps of microseconds, without those outside the years that the tables promise to hold."""
    is_date = pa.types.is_date32(moments.type)
    numbers = moments.view(pa.int32() if is_date else pa.int64())
    kept, bad = _null_outside(numbers, _DAYS if is_date else MICROSECONDS)
    return kept.view(moments.type), bad


def _parse_one(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar | None:
    try:
        return value.cast(kind)
    except pa.ArrowInvalid:
        return None
