"""Unscaled numbers of decimals, written a column at a time: each as Java's BigInteger writes it."""

from __future__ import annotations

import random
from base64 import b64decode
from decimal import Decimal

import pyarrow as pa
import pytest

from serde.connect.values.binary_values import encode_unscaled
from serde.connect.values.unscaled_bytes import encode_decimals

pytestmark = pytest.mark.unit
EDGES = [sign * (2**bits + step) for bits in range(63) for step in (-1, 0, 1) for sign in (1, -1)]


def _numbers(digits: int) -> list[int]:
    rng = random.Random(digits)
    some = [rng.randrange(-(10**digits) + 1, 10**digits) >> rng.randrange(0, digits * 3) for _ in range(500)]
    wide = [sign * (2**bits + step) for bits in range(64, 126) for step in (-1, 0, 1) for sign in (1, -1)]
    return [number for number in (*EDGES, *wide, *some, 0, -1) if abs(number) < 10**digits]


@pytest.mark.parametrize("digits", [1, 4, 9, 18, 19, 38])
def test_numbers_have_as_few_bytes_as_hold_them(digits: int) -> None:
    """At the edges of each length, of both signs, below and above 64 bits."""
    numbers = _numbers(digits)
    column = pa.array([Decimal(number) for number in numbers], pa.decimal128(digits, 0))
    assert encode_decimals(column).to_pylist() == [b64decode(encode_unscaled(number)) for number in numbers]


def test_scale_and_nulls_and_slices() -> None:
    """The unscaled number is what counts; a null stays null, and what lies outside a slice is not read."""
    column = pa.array([Decimal("9.99"), None, Decimal("-1.28"), Decimal("1.28"), None], pa.decimal128(12, 2))
    assert encode_decimals(column).to_pylist() == [b"\x03\xe7", None, b"\x80", b"\x00\x80", None]
    assert encode_decimals(column.slice(2, 2)).to_pylist() == [b"\x80", b"\x00\x80"]
    assert encode_decimals(column.slice(1, 1)).to_pylist() == [None]
    assert encode_decimals(column.slice(0, 0)).to_pylist() == []
    assert encode_decimals(pa.nulls(2, pa.decimal128(38, 4))).to_pylist() == [None, None]
