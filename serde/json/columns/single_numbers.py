"""objects of one whole number each -> wire rows, without a parser: the keys of most tables.

`{"id":123}` is JSON of one field whatever its digits are, so a look at the bytes around them, and at each digit, says
that it is that and which number. Anything else is left to the column reader.
"""

from __future__ import annotations

import numpy as np
import orjson
import pyarrow as pa

from serde.arrays import Ints
from serde.byte_windows import ByteWindows

_MAX_DIGITS = 18
"""Numbers of so many digits fit into 64 bits."""


def read_single_numbers(texts: ByteWindows, kind: pa.StructType) -> pa.StructArray | None:
    """Return the rows of objects that all have one field, a number as it is usually written; None for any others."""
    if kind.num_fields != 1 or kind.field(0).type != pa.int64() or not len(texts):
        return None
    prefix = b"{" + orjson.dumps(kind.field(0).name) + b":"
    if not ((texts.last() == ord("}")) & texts.starts_with(prefix)).all():
        return None
    numbers = _read_numbers(texts, texts.starts + len(prefix), texts.ends - 1)
    return None if numbers is None else pa.StructArray.from_arrays([pa.array(numbers)], fields=list(kind))


def _read_numbers(texts: ByteWindows, starts: Ints, ends: Ints) -> Ints | None:
    """Read the numbers between these places; None where any is not written so: -12, 0, 345."""
    view = texts.view
    if (ends <= starts).any():
        return None
    negative = view[starts] == ord("-")
    starts = starts + negative
    size = ends - starts
    if size.min() < 1 or size.max() > _MAX_DIGITS or ((view[starts] == ord("0")) & ((size > 1) | negative)).any():
        return None
    total = np.zeros(len(size), np.int64)
    for place in range(int(size.max())):
        # From the last digit on; in front of the first nothing counts.
        there = size > place
        digit = np.where(there, view[np.maximum(ends - 1 - place, starts)] - np.uint8(ord("0")), np.uint8(0))
        if (digit > 9).any():  # noqa: PLR2004 - the last digit
            return None
        total += digit * np.int64(10**place)
    return np.where(negative, -total, total)
