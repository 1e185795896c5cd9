"""Events that name their tables, as they were read before these were known -> the same as their tables read them.

What a column of messages without schema is read into depends on those beside it: a number may lose digits, or be a
fault beside texts that are for another table. So faults are read again among messages of their own shape, and changes
of a table that its types would read otherwise by these (`columns.routed_types`). Costs nothing for others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import pyarrow as pa

from connector.sink.convert.columns.type_mismatch import group_by_shape
from connector.sink.convert.routing import RoutedChanges, group_by_code
from serde.arrays import Ints
from serde.events.changes import Changes
from serde.faults import RecordError
from serde.messages import DecodedMessages


def find_clashing(faults: Sequence[RecordError], data: pa.Array) -> Iterator[tuple[Ints, list[RecordError]]]:
    """Yield the rows, ascending, of messages of one shape that could not be read beside others, and their faults."""
    told = {fault.row: fault for fault in faults if fault.stage == "VALUE_CONVERTER"}
    for rows in group_by_shape(data, sorted(told)):
        yield np.array(rows, np.int64), [told[row] for row in rows]


def sort_rows(group: Sequence[RoutedChanges]) -> tuple[Ints, Ints]:
    """Return the rows of a group's changes, ascending, and for each the place of its table in the group."""
    sizes = [one.stop - one.start for one in group]
    rows = group[0].ordered.rows[group[0].start : group[-1].stop]
    order = np.argsort(rows, kind="stable")
    return rows[order], np.repeat(np.arange(len(group)), sizes)[order]


def route_again(change: Changes, group: Sequence[RoutedChanges], rows: Ints, owners: Ints) -> list[RoutedChanges]:
    """Return changes that were read again as those of the tables that they went to (`sort_rows`)."""
    codes = owners[np.searchsorted(rows, change.rows)]
    return [
        RoutedChanges(group[code].table, ordered, start, stop)
        for code, ordered, start, stop in group_by_code(change, codes)
    ]


def place_rows(values: DecodedMessages, rows: Ints) -> DecodedMessages:
    """Return what was decoded of some rows of a run, as of the run."""
    return DecodedMessages(
        tuple(attrs.evolve(block, rows=rows[block.rows]) for block in values.blocks),
        rows[values.tombstones],
        tuple(attrs.evolve(fault, row=int(rows[fault.row])) for fault in values.faults),
    )
