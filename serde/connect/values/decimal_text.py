"""decimals -> text: digits and a point, whatever their size, so that one number has one text."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def format_decimals(array: pa.Array) -> pa.StringArray:
    """Return decimals as digits and point, as many digits behind it as the scale; Arrow writes small ones as 1E-7."""
    text = array.cast(pa.string())
    short = pc.match_substring(text, "E")
    if pc.any(short).as_py() is not True:
        return text
    scale = array.type.scale
    # Arrow writes an exponent only where the first digit stands at least seven places behind the point.
    digits = pc.replace_substring_regex(text, r"^-?([0-9])\.?([0-9]*)E.*$", r"\1\2")
    plain = pc.utf8_lpad(digits, scale + 1, "0")
    sign = pc.if_else(pc.starts_with(text, "-"), "-", "")
    whole, rest = pc.utf8_slice_codeunits(plain, 0, 1), pc.utf8_slice_codeunits(plain, 1)
    return pc.if_else(short, pc.binary_join_element_wise(sign, whole, ".", rest, ""), text)


def drop_trailing_zeros(text: pa.StringArray) -> pa.StringArray:
    """Return numbers as text, those that are equal as the same one: 1.50 and 1.5, 1.0 and 1."""
    fraction = pc.match_substring(text, ".")
    if pc.any(fraction).as_py() is not True:
        return text
    return pc.if_else(fraction, pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), "."), text)
