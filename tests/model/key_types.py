"""Types that can be keys, and values of each: the ordinary, the extreme, and those that readers order differently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from random import Random
from typing import Any

import pyarrow as pa
from attrs import frozen

Draw = Callable[[Random], Any]
EXACT = Context(prec=40)


@frozen
class KeyType:
    """A type; values are those of Arrow's storage: numbers for times, bytes for uuids.

    `nanoseconds`: format version 3 only. `in_spark`: Spark reads tables with such a column. `in_equality_deletes`:
    Iceberg's readers apply equality deletes by it.
    """

    name: str
    arrow: pa.DataType
    extreme: tuple[Any, ...]
    draw: Draw
    nanoseconds: bool = False
    in_spark: bool = True
    in_equality_deletes: bool = True

    @property
    def identifies(self) -> bool:
        """Whether it may be an identifier field (Iceberg's spec)."""
        return not pa.types.is_floating(self.arrow)

    @property
    def in_filters(self) -> bool:
        """Whether filters by its values can be asked for: Iceberg reads none of nanoseconds from JSON."""
        return self.identifies and not self.nanoseconds

    def partitions(self, transform: str) -> bool:
        """Whether tables are partitioned so by it, and readers of 1.12 read them: nanoseconds they do not."""
        types, kind = pa.types, self.arrow
        if transform in ("day", "month", "year"):
            return types.is_date(kind) or (types.is_timestamp(kind) and not self.nanoseconds)
        if transform == "truncate":
            return self.name in ("int", "long", "string", "binary")
        if transform == "bucket":
            return not (types.is_boolean(kind) or types.is_floating(kind))
        return not self.nanoseconds

    def values(self, rng: Random, count: int) -> list[Any]:
        """The extreme values, and drawn ones up to so many; each once."""
        found = dict.fromkeys(self.extreme)
        for _ in range(count * 4):
            if len(found) >= count:
                break
            found[self.draw(rng)] = None
        return list(found)

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Values as a column."""
        if isinstance(self.arrow, pa.UuidType):
            return pa.ExtensionArray.from_storage(self.arrow, pa.array(values, self.arrow.storage_type))
        if pa.types.is_temporal(self.arrow):
            return pa.array(values, pa.int32() if self.arrow.bit_width == 32 else pa.int64()).cast(self.arrow)
        return pa.array(values, self.arrow)


def _whole(bits: int) -> Draw:
    return lambda rng: rng.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1)) >> rng.randrange(bits)


def _text(rng: Random) -> str:
    letters = "aZ~\x7f\u00e9\ud7ff\ue000\uffff\U00010000\U0001f600\U0010ffff"
    return "".join(rng.choice(letters) for _ in range(rng.randrange(24)))


def _decimal(precision: int, scale: int) -> KeyType:
    top = 10**precision - 1
    numbers = [n for n in (0, 1, -1, 127, 128, -128, -129, 255, 256, top, -top, top // 2, -top // 2) if abs(n) <= top]

    def exact(number: int) -> Decimal:
        return Decimal(number).scaleb(-scale, EXACT)

    draw: Draw = lambda rng: exact(rng.randrange(-top, top + 1) // 10 ** rng.randrange(precision))  # noqa: E731
    return KeyType(
        f"decimal_{precision}_{scale}", pa.decimal128(precision, scale), tuple(map(exact, dict.fromkeys(numbers))), draw
    )


def _bytes(count: int) -> Draw:
    return lambda rng: rng.randbytes(count)


_ENDS = {bits: (0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))) for bits in (32, 64)}
_MICROS = (
    *(0, -1, 1, -999_999),
    # What Debezium sends for PostgreSQL's infinities, and the ends of the years that Python has.
    *(9_223_372_036_825_200_000, -9_223_372_036_832_400_000),
    *(253_402_300_799_999_999, 253_402_300_800_000_000, -62_135_596_800_000_000, -62_135_596_800_000_001),
)
_DAYS = (0, -1, 2_932_896, 2_932_897, -719_162, -719_163, 2_146_033_979, -735_160)
_NANOS = (0, -1, 1, 999, -999, 2**63 - 1, -(2**63) + 1, 1_700_000_000_123_456_789)
_UUIDS = tuple(bytes([a]) + bytes(14) + bytes([b]) for a in (0, 0x7F, 0x80, 0xFF) for b in (0, 0x7F, 0x80, 0xFF))
_FLOATS = (0.0, 1.5, -1.5, float("nan"), float("inf"), float("-inf"), -(2.0**-126), 2.0**127)
_BYTES = (0, 0x7F, 0x80, 0xFF)
_BINARIES = (b"", *(bytes([b]) * n for b in _BYTES for n in (1, 16, 20)), b"\x7f" * 15 + b"\xff\x01", b"y" * 5000)
_ENDINGS = ("", "\ud7ff", "\ud7ffx", "\ue000x", "\uffffx", "\U0010ffffx", "\U00010000")
_TEXTS = (
    "",
    *("k" * 15 + end for end in _ENDINGS),
    "\U0010ffff" * 20,
    "\x00",
    "\uffff",
    "\U00010000",
    "x" * 5000,
    "a'/?",
)

KEY_TYPES: tuple[KeyType, ...] = (
    KeyType("uuid", pa.uuid(), _UUIDS, _bytes(16)),
    KeyType("int", pa.int32(), _ENDS[32], _whole(32)),
    KeyType("long", pa.int64(), _ENDS[64], _whole(64)),
    KeyType("boolean", pa.bool_(), (True, False), lambda rng: rng.random() < 0.5),
    KeyType("string", pa.string(), _TEXTS, _text),
    KeyType("binary", pa.binary(), _BINARIES, lambda rng: rng.randbytes(rng.randrange(20))),
    KeyType("fixed", pa.binary(4), tuple(bytes([b]) * 4 for b in _BYTES), _bytes(4), in_equality_deletes=False),
    KeyType("fixed_20", pa.binary(20), tuple(bytes([b]) * 20 for b in _BYTES), _bytes(20), in_equality_deletes=False),
    KeyType("float", pa.float32(), _FLOATS, lambda rng: rng.randrange(-(2**20), 2**20) / 8, in_equality_deletes=False),
    KeyType("double", pa.float64(), _FLOATS, lambda rng: rng.random() * 10.0**9, in_equality_deletes=False),
    KeyType("date", pa.date32(), _DAYS, lambda rng: rng.randrange(-800_000, 3_000_000)),
    KeyType("time", pa.time64("us"), (0, 1, 86_399_999_999), lambda rng: rng.randrange(86_400_000_000), in_spark=False),
    KeyType("timestamp", pa.timestamp("us"), _MICROS, _whole(64)),
    KeyType("timestamptz", pa.timestamp("us", "UTC"), _MICROS, _whole(60)),
    KeyType("timestamp_ns", pa.timestamp("ns"), _NANOS, _whole(64), nanoseconds=True, in_spark=False),
    KeyType("timestamptz_ns", pa.timestamp("ns", "UTC"), _NANOS, _whole(62), nanoseconds=True, in_spark=False),
    *(_decimal(*each) for each in ((1, 0), (9, 2), (10, 0), (18, 18), (19, 3), (38, 0), (38, 10))),
)


def key_type(name: str) -> KeyType:
    """The type of this name."""
    return next(kind for kind in KEY_TYPES if kind.name == name)
