"""one JSON value -> one wire value: the exact, slow twin of the columnar reader,
used where that cannot read a message.
"""

from __future__ import annotations

from decimal import Decimal
from math import isfinite

import pyarrow as pa

from serde.bits import encode
from serde.faults import Unfit
from serde.node import Read

BEYOND = "number beyond the column's range"
_WORDS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_LONG = 2**63
_MOST_DIGITS = 1000


def integer(label: str, bits: int) -> Read:
    """Reads a whole number of `bits` bits."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def read(value: object) -> object:
        if isinstance(value, int) and not isinstance(value, bool):
            if value < low or value > high:
                raise Unfit(f"{BEYOND} ({label})")
            return value
        if isinstance(value, float | Decimal):
            raise Unfit(f"{BEYOND} ({label})" if not -_LONG < value < _LONG else f"not a whole number ({label})")
        raise Unfit(f"not a number ({label})")

    return read


def real(label: str) -> Read:
    """Reads a double; Java writes what has no number as the words NaN, Infinity and -Infinity."""

    def read(value: object) -> object:
        if isinstance(value, str) and value in _WORDS:
            return _WORDS[value]
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise Unfit(f"not a number ({label})")
        try:
            number = float(value)
        except OverflowError:
            number = float("inf")
        if not isfinite(number):
            raise Unfit(f"{BEYOND} ({label})")
        return number

    return read


def boolean(label: str) -> Read:
    """Reads true or false."""

    def read(value: object) -> object:
        if not isinstance(value, bool):
            raise Unfit(f"not a boolean ({label})")
        return value

    return read


def string(label: str) -> Read:
    """Reads a text (base64 of bytes included: the column step decodes it)."""

    def read(value: object) -> object:
        if not isinstance(value, str):
            raise Unfit(f"not a string ({label})")
        return value

    return read


def any_text(label: str) -> Read:
    """Reads a text where no schema says so: numbers and booleans become their text, as a later cast would write it."""

    def read(value: object) -> object:
        if isinstance(value, bool | int | float):
            return _text(value)
        if not isinstance(value, str):
            raise Unfit(f"not a string ({label})")
        return value

    return read


def _text(value: float) -> str:
    if isinstance(value, int):
        return str(value).lower()
    text: str = pa.scalar(value).cast(pa.string()).as_py()
    return text


def decimal(label: str, scale: int) -> Read:
    """Reads base64 text, or the JSON number of decimal.format=NUMERIC, which becomes the same base64."""

    def read(value: object) -> object:
        if isinstance(value, str):
            return value
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise Unfit(f"neither base64 nor a number ({label})")
        try:
            sign, digits, exponent = Decimal(value).as_tuple()
        except ValueError as error:
            raise Unfit(f"{BEYOND} ({label})") from error
        return encode(_unscaled(sign, digits, exponent, scale, label))

    return read


def _unscaled(sign: int, digits: tuple[int, ...], exponent: object, scale: int, label: str) -> int:
    if not isinstance(exponent, int) or abs(exponent) > _MOST_DIGITS or len(digits) > _MOST_DIGITS:
        raise Unfit(f"{BEYOND} ({label})")
    number: int = int("".join(map(str, digits)) or "0")
    shift = exponent + scale
    if shift < 0 and number % 10**-shift:
        raise Unfit(f"more fraction digits than its scale ({label})")
    number = number * int(10**shift) if shift >= 0 else number // int(10**-shift)
    return -number if sign else number


def nothing(_value: object) -> object:
    """Reads a column of which no value is known: any value is a surprise."""
    raise Unfit("not null (null)")
