"""Where the beginnings of the old row groups are in the new files -> which files were rewritten into which (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

SCATTERED_ROWS = 64
"""The first rows of a row group that lie further apart in a new file were shuffled."""

MIN_IN_ORDER_SHARE = 0.7
"""Below this share of row groups found in order, walking side by side would find too little."""


@attrs.frozen
class RowGroupMatch:
    """The first rows of an old file's row group, seen in a new file between two rows."""

    before: int
    group: int
    after: int
    first_row: int
    last_row: int

    @property
    def together(self) -> bool:
        """Whether they stayed together."""
        return self.last_row - self.first_row <= SCATTERED_ROWS


@attrs.frozen
class FileRewrite:
    """Old files that went into new files, each side in the order in which rows are met."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def is_in_order(sightings: Iterable[RowGroupMatch], groups: int) -> bool:
    """Return whether most of the old row groups can be met in order."""
    kept = {(one.before, one.group) for one in sightings if one.together}
    return groups > 0 and len(kept) >= MIN_IN_ORDER_SHARE * groups


def group_rewrites(sightings: Sequence[RowGroupMatch], before: int, after: int) -> tuple[FileRewrite, ...]:
    """Group `before` old files and `after` new ones by what went into what; every file is in exactly one group."""
    roots = {("b", i): ("b", i) for i in range(before)} | {("a", i): ("a", i) for i in range(after)}
    for one in sightings:
        roots[_find_root(roots, ("b", one.before))] = _find_root(roots, ("a", one.after))
    first: dict[int, tuple[int, int]] = {}
    for one in sorted(sightings, key=lambda one: (one.after, one.first_row)):
        first.setdefault(one.before, (one.after, one.first_row))
    members: dict[tuple[str, int], tuple[list[int], list[int]]] = {}
    for node in roots:
        sides = members.setdefault(_find_root(roots, node), ([], []))
        sides[0 if node[0] == "b" else 1].append(node[1])
    return tuple(
        FileRewrite(tuple(sorted(old, key=lambda i: first.get(i, (after, i)))), tuple(new))
        for old, new in members.values()
    )


def _find_root(roots: Mapping[tuple[str, int], tuple[str, int]], node: tuple[str, int]) -> tuple[str, int]:
    while roots[node] != node:
        node = roots[node]
    return node
