"""Column bounds of files that went and files that came -> those whose rows can have no partner (pure).

Partners, equal rows and updates alike, agree in the key; so a file whose keys are outside of every file of the other
side holds only deletes, or only creates, and need not be shuffled. Partition values are bounds of a single value.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from connector.iceberg.keys.intervals import Interval, group_overlapping

ColumnSpans = Mapping[str, Interval]


def files_without_partner(
    files: Sequence[ColumnSpans], others: Sequence[ColumnSpans], columns: Iterable[str]
) -> list[bool]:
    """Return for each file whether, in some column, no other file's span touches its own; unknown spans touch all."""
    result = [False] * len(files)
    for column in columns:
        spans = [other.get(column) for other in others]
        known = [span for span in spans if span is not None]
        if len(known) == len(spans):
            merged = [
                (group[0][0], max(high for _, high in group)) for group in group_overlapping(known, lambda span: span)
            ]
            result = [done or _is_disjoint(file.get(column), merged) for done, file in zip(result, files, strict=True)]
    return result


def _is_disjoint(span: Interval | None, merged: list[Interval]) -> bool:
    if span is None:
        return False
    at = bisect_right([low for low, _ in merged], span[1]) - 1
    return at < 0 or merged[at][1] < span[0]
