"""Changes in sorted runs -> where runs begin, and the first and last known changes of a key. Pure rules."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from connector.sink.model.change_rows import ChangeOrder
from serde.arrays import Ints, Mask


def mark_run_starts(*sorted_columns: npt.NDArray[np.integer]) -> Mask:
    """Mark the first row of each run of equal rows; the columns are aligned, and at least one."""
    first = np.ones(len(sorted_columns[0]), np.bool_)
    first[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in sorted_columns])
    return first


def find_last_known(codes: Ints, order: ChangeOrder, known: Mask) -> Ints:
    """Return for each change the last known one of its key and partition up to it; else the first of all."""
    sequence = np.lexsort((order.offset, order.partition, codes))
    first = mark_run_starts(codes[sequence], order.partition[sequence])
    before = np.empty_like(sequence)
    before[sequence] = sequence[np.maximum.accumulate(np.where(known[sequence] | first, np.arange(len(sequence)), 0))]
    return before


def find_first(codes: Ints, order: ChangeOrder) -> Ints:
    """Return for each change the first one of its key and partition."""
    return find_last_known(codes, order, np.zeros(len(codes), np.bool_))


def find_evidence(order: ChangeOrder, group: Ints) -> Ints:
    """Return for each change of groups in runs the one whose age it has: itself, or of a tombstone the one before."""
    places = np.arange(len(group))
    evidence: Ints = np.maximum.accumulate(np.where(~order.bare | mark_run_starts(group), places, 0))
    return evidence
