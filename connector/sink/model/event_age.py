"""A change -> what it proves of its age: where it stands in its source's log, and its date. Pure rules on columns.

A date of a whole second proves nothing: MySQL and MariaDB date an event by the second in which its statement began, so
that later changes may have earlier dates. Nor does one before 1970, as -1 stands for no date. Nor does anything that a
read says of itself: it is dated when it was made or sent, and its position is that of the snapshot, while transactions
that were open then have smaller ones. An event that does not tell its operation may be a read.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from serde.arrays import Ints, Mask
from serde.events.flattened_rows import name_columns
from serde.events.kinds.operations import OP_READ
from serde.events.positions.log_positions import (
    FIRST_NUMBER,
    NO_VALUE,
    SOURCE_COLUMN,
    LogPositions,
    paired_numbers,
    unknown_positions,
)
from serde.events.positions.source_positions import POSITION_FIELDS

_UNITS_PER_SECOND = {"ns": 1_000_000_000, "us": 1_000_000, "ms": 1_000}


def units_per_second(column: str, prefix: str = "__") -> int | None:
    """Return how long a second is in a dedup column that is one of Debezium's times; None for any other."""
    for start in {"__", prefix}:
        for unit, second in _UNITS_PER_SECOND.items():
            if column in (f"{start}source_ts_{unit}", f"{start}ts_{unit}"):
                return second
    return None


def is_declared(column: str, prefix: str = "__") -> bool:
    """Tell whether a dedup column is one of the row's own, which settings declare to tell its place: neither a time of
    Debezium's nor a part of the place that its source tells.
    """
    places = (name_columns(field, start) for start in {"__", prefix} for field in POSITION_FIELDS)
    return units_per_second(column, prefix) is None and not any(column in names for names in places)


def select_proven_dates(dedup: Ints, op: npt.NDArray[np.uint8], deleted: Mask, second: int | None) -> Ints:
    """Return the dates that prove something, else `NO_VALUE`.

    Args:
        dedup: dedup values.
        op: operations.
        deleted: which changes remove their key.
        second: as `units_per_second` says.
    """
    if second is None:
        return np.full(len(dedup), NO_VALUE, np.int64)
    return np.where(_is_read(op, deleted) | (dedup % second == 0) | (dedup < 0), NO_VALUE, dedup)


def select_proven_places(
    place: LogPositions, dedup: Ints, op: npt.NDArray[np.uint8], deleted: Mask, *, declared: bool
) -> LogPositions:
    """Return the places that prove something: the dedup values where these are declared to be that, reads' too."""
    if declared:
        told = unknown_positions(len(dedup))
        told[:, SOURCE_COLUMN], told[:, FIRST_NUMBER] = place[:, SOURCE_COLUMN], dedup
        return told
    reads = _is_read(op, deleted)
    if not reads.any():
        return place
    return np.where(reads[:, None] & (np.arange(place.shape[1]) == FIRST_NUMBER), NO_VALUE, place)


def mark_below(place: LogPositions, limit: npt.NDArray[np.int64]) -> Mask:
    """Mark places that are smaller than a limit: rows of three numbers, or one for all.

    Where both number their transaction too (MySQL), that has to be smaller as well: else it may be another log.
    """
    owner, number, paired = _pair_with(place, limit)
    result: Mask = _mark_smaller(place, limit) & ~(paired & ((owner != limit[..., 1]) | (number >= limit[..., 2])))
    return result


def mark_above(place: LogPositions, limit: npt.NDArray[np.int64]) -> Mask:
    """Mark places that are greater than a limit, by the same rule."""
    same = (place[:, FIRST_NUMBER:] == limit).all(axis=1)
    owner, number, paired = _pair_with(place, limit)
    unsure = paired & ((owner != limit[..., 1]) | (number < limit[..., 2]))
    result: Mask = ~same & ~_mark_smaller(place, limit) & ~unsure
    return result


def _mark_smaller(place: LogPositions, limit: npt.NDArray[np.int64]) -> Mask:
    result: Mask = np.zeros(len(place), np.bool_)
    for column in reversed(range(place.shape[1] - FIRST_NUMBER)):
        own, other = place[:, FIRST_NUMBER + column], limit[..., column]
        result = (own < other) | ((own == other) & result)
    return result


def _pair_with(place: LogPositions, limit: npt.NDArray[np.int64]) -> tuple[Ints, Ints, Mask]:
    """Return who numbered each transaction, its number, and where the limit tells both too."""
    owner, number, told = paired_numbers(place)
    return owner, number, told & (limit[..., 1] < 0)


def _is_read(op: npt.NDArray[np.uint8], deleted: Mask) -> Mask:
    return (op == OP_READ) | ((op == 0) & ~deleted)
