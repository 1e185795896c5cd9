"""Keys of a batch -> few ranges that hold them all -> Iceberg's filter for files that may have such rows. Pure.

What a file may hold is known by its partition and the bounds of its columns. Keys of a batch often lie close together
(the rows that changed are the recent ones): their ranges leave most files of a table out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from connector.iceberg.keys.intervals import Interval, group_overlapping, is_ordered_type
from connector.iceberg.types.values.single_values import encode_json, to_stored_values

MAX_RANGES = 32
"""Ranges of a task, and of all together: each is looked at for every file."""

KeyRange = Mapping[str, Interval]


@attrs.frozen
class KeyRanges:
    """How many keys there are, of how many bytes, and where: by column the lowest and highest value of each range.

    Without ranges the keys may be anywhere: no column of theirs has an order that Iceberg's bounds keep.
    """

    count: int = 0
    size_bytes: int = 0
    ranges: tuple[KeyRange, ...] = ()

    @staticmethod
    def of(keys: pa.RecordBatch) -> KeyRanges:
        """Cut keys where the gaps between them are widest."""
        ordered = [field.name for field in keys.schema if is_ordered_type(field.type)]
        if not ordered or not keys.num_rows:
            return KeyRanges(keys.num_rows, keys.nbytes)
        rows = keys.select(ordered).take(pc.sort_indices(keys.column(ordered[0])))
        starts = _range_starts(rows.column(0))
        pieces = zip(starts, [*starts[1:], rows.num_rows], strict=True)
        ranges = (_build_range(rows.slice(start, stop - start)) for start, stop in pieces)
        return KeyRanges(keys.num_rows, keys.nbytes, tuple(ranges))

    @staticmethod
    def join(parts: Iterable[KeyRanges]) -> KeyRanges:
        """Take the keys of several tasks together; ranges that overlap in the first column become one."""
        parts = [part for part in parts if part.count]
        found = [each for part in parts for each in part.ranges]
        if found:
            first = next(iter(found[0]))
            found = _merge_neighbours(
                [_merge_ranges(group) for group in group_overlapping(found, lambda each: each[first])]
            )
        return KeyRanges(sum(part.count for part in parts), sum(part.size_bytes for part in parts), tuple(found))

    def filter(self, schema: Schema) -> str | None:
        """Return the filter as Iceberg's JSON (`ExpressionParser`); None for every file."""
        if not self.ranges:
            return None
        return orjson.dumps(_join_expressions("or", [_range_expression(each, schema) for each in self.ranges])).decode()


def _range_starts(column: pa.Array) -> list[int]:
    """Return where ranges of a sorted column begin."""
    wanted = min(MAX_RANGES, len(column)) - 1
    if pa.types.is_string(column.type) or pa.types.is_decimal(column.type):
        return np.unique(np.linspace(0, len(column), wanted + 1, endpoint=False, dtype=np.int64)).tolist()
    numbers = column.cast(pa.int32()) if pa.types.is_date(column.type) else column
    gaps = np.diff(np.asarray(numbers.cast(pa.int64())).astype(np.float64))
    widest: Any = np.argpartition(gaps, len(gaps) - wanted)[len(gaps) - wanted :] if wanted else []
    return [0, *sorted(int(place) + 1 for place in widest if gaps[place] > 1)]


def _build_range(rows: pa.RecordBatch) -> KeyRange:
    found = {
        name: pc.min_max(to_stored_values(column)) for name, column in zip(rows.schema.names, rows.columns, strict=True)
    }
    return {name: (span["min"].as_py(), span["max"].as_py()) for name, span in found.items()}


def _merge_neighbours(ranges: Sequence[KeyRange]) -> list[KeyRange]:
    width = -(-len(ranges) // MAX_RANGES)
    return [_merge_ranges(ranges[start : start + width]) for start in range(0, len(ranges), width)]


def _merge_ranges(ranges: Sequence[KeyRange]) -> KeyRange:
    return {name: (min(r[name][0] for r in ranges), max(r[name][1] for r in ranges)) for name in ranges[0]}


def _range_expression(each: KeyRange, schema: Schema) -> dict[str, Any]:
    terms = []
    for name, (low, high) in each.items():
        kind: Any = schema.find_type(name)
        if low == high:
            # Only a single value can be told from the partitions of a bucket transform.
            terms.append({"type": "eq", "term": name, "value": encode_json(kind, low)})
            continue
        terms.append({"type": "gt-eq", "term": name, "value": encode_json(kind, low)})
        terms.append({"type": "lt-eq", "term": name, "value": encode_json(kind, high)})
    return _join_expressions("and", terms)


def _join_expressions(operation: str, terms: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Join terms two by two, so that the tree is no deeper than it has to be."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return {
        "type": operation,
        "left": _join_expressions(operation, terms[:half]),
        "right": _join_expressions(operation, terms[half:]),
    }
