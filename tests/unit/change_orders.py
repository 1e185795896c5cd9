"""Places, dates and operations -> the order of changes that tell these."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from connector.sink.model.change_rows import ChangeOrder
from serde.events.positions.log_positions import NO_VALUE, unknown_positions

_SOURCE = 1


def make_order(
    places: Sequence[int | None],
    dates: Sequence[int | None],
    *,
    ops: str | None = None,
    partitions: Sequence[int] | None = None,
    sources: Sequence[int] | None = None,
    pairs: Sequence[tuple[int, int]] | None = None,
) -> ChangeOrder:
    """Changes one behind the other in Kafka; None tells no place or date.

    Args:
        places: the first numbers of their places.
        dates: which are their dedup values, too.
        ops: a letter for each operation (default: updates).
        partitions: theirs (default: one).
        sources: the numbers of their sources (default: one).
        pairs: the other two numbers of their places (default: 0).
    """
    count = len(places)
    place = unknown_positions(count, _SOURCE)
    if sources is not None:
        place[:, 0] = sources
    for at, first in enumerate(places):
        if first is not None:
            place[at, 1:] = (first, *(pairs[at] if pairs else (0, 0)))
    date = np.array([NO_VALUE if one is None else one for one in dates], np.int64)
    op = np.frombuffer((ops or "u" * count).encode(), np.uint8)
    partition = np.zeros(count, np.int64) if partitions is None else np.array(partitions, np.int64)
    return ChangeOrder(partition, np.arange(count, dtype=np.int64), date, date, place, op)
