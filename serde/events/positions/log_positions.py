"""Places in sources' logs -> numbers that rise with each, a row for each event, and the names of sources (pure)."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np

from serde.arrays import Ints, Mask

NO_VALUE = np.iinfo(np.int64).min
"""Stands for "not known"; real values are greater."""

LogPositions = np.ndarray[tuple[int, int], np.dtype[np.int64]]
"""A row per event: a number that names the source, and three that rise with its log, in order of their weight.

The second is `NO_VALUE` where the event does not say where it stands.
"""
SOURCE_COLUMN, FIRST_NUMBER = 0, 1
_SECOND_NUMBER, _THIRD_NUMBER = 2, 3
_COLUMNS = 4
LOG_SEPARATOR = " @"
"""Stands in the name of a source before what tells its logs apart."""


def unknown_positions(count: int, source: int = 0) -> LogPositions:
    """The place of events that do not say it."""
    places = np.zeros((count, _COLUMNS), np.int64)
    places[:, SOURCE_COLUMN], places[:, FIRST_NUMBER] = source, NO_VALUE
    return places


def paired_numbers(place: LogPositions) -> tuple[Ints, Ints, Mask]:
    """Who numbered each change's transaction, that number, and which changes tell it: it rises beside the place."""
    owner, number = place[:, _SECOND_NUMBER], place[:, _THIRD_NUMBER]
    return owner, number, (owner < 0) & (place[:, FIRST_NUMBER] != NO_VALUE)


def strip_log_name(name: str) -> str:
    """Return the name of a source without what tells its logs apart."""
    return name.partition(LOG_SEPARATOR)[0]


@lru_cache(maxsize=10_000)
def source_number(name: str) -> int:
    """The number of a source, the same in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") >> 1
