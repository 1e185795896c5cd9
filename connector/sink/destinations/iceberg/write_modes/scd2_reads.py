"""Reads of a history, and what changed since -> when these were true: a read is dated later than it was. Pure rules.

A snapshot dates rows when they are read or sent; a change that Kafka has behind a read is newer, whatever its date
(docs/decisions/0024). What the table had known before it read a row says which changes come again.
"""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa

from connector.iceberg.keys.key_codes import encode_keys
from serde.arrays import Ints, Mask
from serde.events.positions.log_positions import NO_VALUE


@attrs.frozen(eq=False)
class VersionTimes:
    """Versions and deletes, aligned: which key each is of, when it came and ended (microseconds, `NO_VALUE` where that
    is not known), where it is in Kafka, and whether it came with the batch and is a read.
    """

    codes: Ints
    since: Ints
    until: Ints
    partition: Ints
    offset: Ints
    new: Mask
    read: Mask

    def mark_starts(self, codes: Ints, times: Ints, which: Mask) -> Mask:
        """Mark the times at which one of some versions of the key came."""
        columns = (codes, self.codes[which]), (times, self.since[which])
        pairs = encode_keys([pa.array(np.concatenate(column)) for column in columns])
        result: Mask = np.isin(pairs[: len(codes)], pairs[len(codes) :])
        return result


def date_reads(times: VersionTimes) -> Ints:
    """Return for each read that a change behind it in Kafka seems to come before the last moment in front of that
    change; `NO_VALUE` for all else.
    """
    result = np.full(len(times.codes), NO_VALUE, np.int64)
    changes, codes, since = np.flatnonzero(times.new & ~times.read), times.codes, times.since
    for reads, groups in ((~times.new, codes), (times.new, codes * (int(times.partition.max()) + 2) + times.partition)):
        rows = np.flatnonzero(reads & times.read)
        if not len(rows) or not len(changes):
            continue
        known = np.maximum(_find_known(times, rows), _find_latest_before(times, groups, rows))
        following = _find_next(groups[changes], since[changes], groups[rows], known)
        earlier = (following != NO_VALUE) & (following < since[rows])
        result[rows[earlier]] = following[earlier] - 1
    return result


def mark_superfluous(times: VersionTimes, moved_to: Ints) -> Mask:
    """Mark the moved reads of a moment at which another version came, or a later read was moved to."""
    moved = np.flatnonzero(moved_to != NO_VALUE)
    result = np.zeros(len(moved_to), np.bool_)
    result[moved] = times.mark_starts(times.codes[moved], moved_to[moved], moved_to == NO_VALUE)
    sequence = moved[np.lexsort((times.new[moved], times.since[moved], moved_to[moved], times.codes[moved]))]
    code, at = times.codes[sequence], moved_to[sequence]
    result[sequence[:-1]] |= (code[1:] == code[:-1]) & (at[1:] == at[:-1])
    return result


def _find_known(times: VersionTimes, rows: Ints) -> Ints:
    """Return the last time before each read at which the table knows of a change or delete of its key."""
    held = ~times.new & ~times.read
    ended = np.flatnonzero(~times.new & (times.until != NO_VALUE))
    ended = ended[~times.mark_starts(times.codes[ended], times.until[ended], times.read)]
    code = np.concatenate([times.codes[held], times.codes[ended]])
    when = np.concatenate([times.since[held], times.until[ended]])
    values, rank = np.unique(np.concatenate([when, times.since[rows]]), return_inverse=True)
    width = len(values) + 1
    known = np.sort(code * width + rank[: len(code)])
    place = np.searchsorted(known, times.codes[rows] * width + rank[len(code) :]) - 1
    found = known[np.maximum(place, 0)] if len(known) else np.zeros(len(rows), np.int64)
    return np.where((place >= 0) & (found // width == times.codes[rows]), values[found % width], NO_VALUE)


def _find_latest_before(times: VersionTimes, groups: Ints, rows: Ints) -> Ints:
    """Return the latest time of the changes before each read in its partition of the batch."""
    values, rank = np.unique(np.where(times.new & ~times.read, times.since, NO_VALUE), return_inverse=True)
    sequence = np.lexsort((times.offset, groups))
    group = np.unique(groups[sequence], return_inverse=True)[1] * (len(values) + 1)
    latest = np.empty(len(groups), np.int64)
    latest[sequence] = np.maximum.accumulate(group + rank[sequence]) - group
    return np.where(times.new[rows], values[latest[rows]], NO_VALUE)


def _find_next(groups: Ints, when: Ints, own: Ints, known: Ints) -> Ints:
    """Return the first of some times of a group after a known one; `NO_VALUE` without any."""
    values, rank = np.unique(np.concatenate([when, known]), return_inverse=True)
    width = len(values) + 1
    pairs = np.sort(groups * width + rank[: len(groups)])
    place = np.searchsorted(pairs, own * width + rank[len(groups) :], side="right")
    found = pairs[np.minimum(place, len(pairs) - 1)]
    return np.where((place < len(pairs)) & (found // width == own), values[found % width], NO_VALUE)
