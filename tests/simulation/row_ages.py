"""Rows of a simulated table -> when each was written: what `lookups.held_rows` has Spark tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from connector.sink.destinations.iceberg.lookups.held_rows import AgeColumns, MomentColumns

Row = dict[str, Any]
_LEAST = -(2**63)


@attrs.frozen
class HeldRow:
    """A row of a table, or one that was: its values, where it stands, and whether it may be another one."""

    values: Row
    file: str
    position: int
    unsure: bool = False


Moved = tuple[int | None, int | None]
"""When a key changed, and where that stands in the source's log."""
NEVER: Moved = (None, None)


def read_moment(row: Row, moment: MomentColumns) -> Moved:
    return row[moment.time], row[moment.place]


def _is_later(one: Moved, other: Moved) -> bool:
    if one[0] is None or other[0] is None:
        return False
    placed = one[1] is not None and other[1] is not None
    return one[0] > other[0] or (one[0] == other[0] and placed and one[1] > other[1])  # type: ignore[operator]


@attrs.frozen
class RowAges:
    """When rows of a table were written, as `lookups.held_rows` tells it."""

    columns: AgeColumns
    op_field: str

    def find_own(self, rows: Sequence[HeldRow], since: Moved) -> HeldRow | None:
        """Find what the table has of a row since its key changed."""
        return next((one for one in rows if self._is_since(one, since)), None)

    def find_within(self, rows: Sequence[HeldRow], since: Moved, until: Moved) -> HeldRow | None:
        """Find what the table has of a row under a key that it got and lost."""
        found = [one for one in rows if self._is_since(one, since) and self._is_until(one, since, until)]
        return self.doubt(max(found, key=self._order), until) if found else None

    def is_before(self, row: HeldRow, changed: Moved) -> bool:
        """Say that a row may be the one that a key change took along."""
        order, place = self._tell(row)
        if self._is_read(row) or order is None or changed[0] is None or order < changed[0]:
            return True
        return order == changed[0] and (place is None or changed[1] is None or place <= changed[1])

    def is_between(self, row: HeldRow, since: Moved, until: Moved) -> bool:
        """Say that a row was certainly written after one moment and before another."""
        return not self._is_read(row) and _is_later(self._tell(row), since) and _is_later(until, self._tell(row))

    def doubt(self, row: HeldRow, changed: Moved) -> HeldRow:
        """Return a row that tells whether nothing says if it was there before a key change."""
        order, place = self._tell(row)
        tied = order is not None and order == changed[0] and not self._is_read(row)
        return attrs.evolve(row, unsure=tied and (place is None or changed[1] is None))

    def rank(self, row: HeldRow) -> tuple[bool, int, int]:
        """Tell the later one of rows that went."""
        place = self._tell(row)[1]
        return not self._is_read(row), self._order(row), _LEAST if place is None else place

    def _is_since(self, row: HeldRow, since: Moved) -> bool:
        order, place = self._tell(row)
        if self._is_read(row) or order is None or since[0] is None:
            return False
        tied = order == since[0] and (place is None or since[1] is None or place >= since[1])
        return order > since[0] or tied

    def _is_until(self, row: HeldRow, since: Moved, until: Moved) -> bool:
        order, place = self._tell(row)
        if order is None or until[0] is None:
            return False
        within = since[0] == until[0] if place is None or until[1] is None else place < until[1]
        return order < until[0] or (order == until[0] and within)

    def _is_read(self, row: HeldRow) -> bool:
        return row.values.get(self.op_field) == "r"

    def _order(self, row: HeldRow) -> int:
        order = self._tell(row)[0]
        return _LEAST if order is None else order

    def _tell(self, row: HeldRow) -> Moved:
        told = (None if name is None else row.values.get(name) for name in (self.columns.time, self.columns.place))
        order, place = (one if isinstance(one, int) else None for one in told)
        return order, place
