"""Column bounds of files that went and files that came -> those whose rows can have no partner (pure).

Partners, equal rows and updates alike, agree in the key; so a file whose keys are outside of every file of the other
side holds only deletes, or only creates, and need not be shuffled. Partition values are bounds of a single value.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Span = tuple[Any, Any]
Spans = Mapping[str, Span]


def alone(files: Sequence[Spans], others: Sequence[Spans], columns: Iterable[str]) -> list[bool]:
    """Tell for each file whether, in some column, no other file's span touches its own; unknown spans touch all."""
    result = [False] * len(files)
    for column in columns:
        spans = [other.get(column) for other in others]
        known = [span for span in spans if span is not None]
        if len(known) == len(spans):
            merged = _merged(known)
            result = [done or _apart(file.get(column), merged) for done, file in zip(result, files, strict=True)]
    return result


def _merged(spans: list[Span]) -> list[Span]:
    """Join spans that touch, in order."""
    merged: list[Span] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def _apart(span: Span | None, merged: list[Span]) -> bool:
    if span is None:
        return False
    at = bisect_right([low for low, _ in merged], span[1]) - 1
    return at < 0 or merged[at][1] < span[0]
