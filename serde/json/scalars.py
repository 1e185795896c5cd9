"""one JSON value -> one wire value: the exact, slow twin of the columnar reader,
used where that cannot read a message.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from math import isfinite

import numpy as np
import pyarrow as pa

from serde.connect.schema_node import Read
from serde.connect.values.binary_values import encode_unscaled
from serde.faults import Unfit

OUT_OF_RANGE = "number beyond the column's range"
_FLOAT_WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_LONG = 2**63
_ALWAYS_EXACT = 2**24
"""Whole numbers up to here are floating numbers of 32 bits."""
_MAX_DIGITS = 1000
_SINGLE = 32
_PLAIN_TEXT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def integer_reader(label: str, bits: int) -> Read:
    """Reads a whole number of `bits` bits."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def read(value: object) -> object:
        if isinstance(value, int) and not isinstance(value, bool):
            if value < low or value > high:
                raise Unfit(f"{OUT_OF_RANGE} ({label})")
            return value
        if isinstance(value, float | Decimal):
            raise Unfit(f"{OUT_OF_RANGE} ({label})" if not -_LONG < value < _LONG else f"not a whole number ({label})")
        raise Unfit(f"not a number ({label})")

    return read


def whole_number_reader(label: str) -> Read:
    """Reads a whole number of 64 bits where no schema says how it is written: 1e3 and 1.0 are whole numbers too."""
    of_integer = integer_reader(label, 64)

    def read(value: object) -> object:
        if isinstance(value, Decimal) and value.copy_abs() <= _LONG and value == value.to_integral_value():
            return of_integer(int(value))
        return of_integer(value)

    return read


def holds_exactly(number: int, bits: int) -> bool:
    """True when a floating number of so many bits is this whole number, or is written as it."""
    if -_ALWAYS_EXACT <= number <= _ALWAYS_EXACT:
        return True
    try:
        nearest = np.float32(number) if bits == _SINGLE else float(number)
    except OverflowError:
        return False
    return bool(isfinite(nearest)) and number in (int(nearest), int(Decimal(str(nearest))))


def float_reader(label: str, bits: int = 64) -> Read:
    """Reads a floating number: of a fraction the nearest, of a whole number itself.

    Java writes what has no number as the words NaN, Infinity and -Infinity.
    """

    def read(value: object) -> object:
        if isinstance(value, str) and value in _FLOAT_WORDS:
            return _FLOAT_WORDS[value]
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise Unfit(f"not a number ({label})")
        if isinstance(value, int) and not holds_exactly(value, bits):
            raise Unfit(f"{OUT_OF_RANGE} ({label})")
        # Rounded to a double first, a number may come to lie between two floats.
        number = float(value) if bits != _SINGLE else pa.scalar(str(value)).cast(pa.float32()).as_py()
        if not isfinite(number):
            raise Unfit(f"{OUT_OF_RANGE} ({label})")
        return number

    return read


def boolean_reader(label: str) -> Read:
    """Reads true or false."""

    def read(value: object) -> object:
        if not isinstance(value, bool):
            raise Unfit(f"not a boolean ({label})")
        return value

    return read


def text_reader(label: str) -> Read:
    """Reads a text (base64 of bytes included: the column step decodes it)."""

    def read(value: object) -> object:
        if not isinstance(value, str):
            raise Unfit(f"not a string ({label})")
        return value

    return read


def any_text_reader(label: str) -> Read:
    """Reads a text where no schema says so: numbers and booleans become their text, every digit of it."""

    def read(value: object) -> object:
        if isinstance(value, bool | int | float | Decimal):
            return _format_value(value)
        if not isinstance(value, str):
            raise Unfit(f"not a string ({label})")
        return value

    return read


def _format_value(value: float | Decimal) -> str:
    """A number as a later cast of its double would write it, its own digits where no double has them."""
    if isinstance(value, int):
        return str(value).lower()
    double = float(value)
    if isfinite(double) and Decimal(repr(double)) == value:
        text: str = pa.scalar(double).cast(pa.string()).as_py()
        return text
    return str(value)


def number_reader(label: str, kind: pa.Decimal128Type) -> Read:
    """Reads a number into a known decimal, and a text of one that cannot be base64 (`decimal.handling.mode=string`)."""

    def read(value: object) -> object:
        if isinstance(value, str):
            if not _PLAIN_TEXT.fullmatch(value) or (kind.scale and "." not in value):
                raise Unfit(f"not the text of a number ({label})")
            value = Decimal(value)
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise Unfit(f"not a number ({label})")
        sign, digits, exponent = _decimal_digits(value, label)
        unscaled = _scale_digits(sign, digits, exponent, kind.scale, label)
        if abs(unscaled) >= 10**kind.precision:
            raise Unfit(f"{OUT_OF_RANGE} ({label})")
        return Decimal(f"{unscaled}E-{kind.scale}")

    return read


def _decimal_digits(value: int | Decimal, label: str) -> tuple[int, tuple[int, ...], object]:
    try:
        sign, digits, exponent = Decimal(value).as_tuple()
    except (ValueError, InvalidOperation) as error:
        raise Unfit(f"{OUT_OF_RANGE} ({label})") from error
    return sign, digits, exponent


def decimal_reader(label: str, scale: int) -> Read:
    """Reads base64 text, or the JSON number of decimal.format=NUMERIC, which becomes the same base64."""

    def read(value: object) -> object:
        if isinstance(value, str):
            return value
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise Unfit(f"neither base64 nor a number ({label})")
        return encode_unscaled(_scale_digits(*_decimal_digits(value, label), scale, label))

    return read


def _scale_digits(sign: int, digits: tuple[int, ...], exponent: object, scale: int, label: str) -> int:
    if not isinstance(exponent, int) or abs(exponent) > _MAX_DIGITS or len(digits) > _MAX_DIGITS:
        raise Unfit(f"{OUT_OF_RANGE} ({label})")
    number: int = int("".join(map(str, digits)) or "0")
    shift = exponent + scale
    if shift < 0 and number % 10**-shift:
        raise Unfit(f"more fraction digits than its scale ({label})")
    number = number * int(10**shift) if shift >= 0 else number // int(10**-shift)
    return -number if sign else number


def reject_value(_value: object) -> object:
    """Reads a column of which no value is known: any value is a surprise."""
    raise Unfit("not null (null)")
