"""Offset ranges of a batch -> shares of about equal size, one for each task that reads (pure)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import pairwise

import attrs


@attrs.frozen(order=True)
class OffsetRange:
    """The offsets of a topic-partition from `start` up to, not including, `end`.

    `epoch` is the leader epoch of the record in front of `start`, -1 if unknown.
    """

    topic: str
    partition: int
    start: int
    end: int
    epoch: int = -1

    def __len__(self) -> int:
        return self.end - self.start


def assign_to_tasks(ranges: Sequence[OffsetRange], tasks: int) -> list[tuple[OffsetRange, ...]]:
    """Deal ranges out to at most so many tasks; one that is larger than a fair share is cut into even pieces.

    Small ranges stay whole and share tasks, so many small topics cost what one large one does.
    """
    total = sum(len(r) for r in ranges)
    if not total:
        return []
    fair = max(1, -(-total // tasks))
    pieces = sorted((p for r in ranges if len(r) for p in _cut_range(r, fair)), key=lambda p: (-len(p), p))
    heap = [(0, number) for number in range(min(tasks, len(pieces)))]
    dealt: list[list[OffsetRange]] = [[] for _ in heap]
    for piece in pieces:
        load, number = heapq.heappop(heap)
        dealt[number].append(piece)
        heapq.heappush(heap, (load + len(piece), number))
    return [tuple(sorted(share)) for share in dealt]


def _cut_range(whole: OffsetRange, fair: int) -> list[OffsetRange]:
    count = -(-len(whole) // fair)
    cuts = [whole.start + len(whole) * i // count for i in range(count + 1)]
    pieces = [attrs.evolve(whole, start=a, end=b, epoch=-1) for a, b in pairwise(cuts)]
    return [attrs.evolve(pieces[0], epoch=whole.epoch), *pieces[1:]]
