"""Messages, and layouts of their last fields -> the messages that end in one, and its values as columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from attrs import define, field, frozen

from serde.arrays import Bytes, Ints, Mask
from serde.byte_windows import ByteWindows
from serde.json.columns.trailer_layout import Path, TrailerLayout, TrailerLeaf, type_at

_MAX_LAYOUTS, _CHUNK_BYTES, _WORD = 16, 1 << 18, 8
_ALL_TRUE = np.uint64(0x0101010101010101)
_QUOTE = ord('"')
_IMAGES = frozenset({"before", "after"})
Lines = npt.NDArray[np.uint8]
"""A line of bytes for each message."""


@frozen(eq=False)
class WantedFields:
    """What is asked for: fields of `kind`, of envelopes the images and only these paths besides; None for all."""

    kind: pa.StructType
    paths: frozenset[str] | None

    def leaves(self, layout: TrailerLayout) -> tuple[TrailerLeaf, ...]:
        """Return the texts and numbers of a layout that are asked for."""
        # Without op and source a trailer does not tell that its messages are envelopes.
        paths = self.paths if {"op", "source"} <= set(layout.names) else None
        return tuple(
            leaf
            for leaf in layout.leaves
            if type_at(self.kind, leaf.path) is not None
            and leaf.form != "null"
            and (paths is None or _is_wanted(leaf.path, paths))
        )


def _is_wanted(path: Path, paths: frozenset[str]) -> bool:
    # Where values have one width each, images are among the fields that messages are alike in.
    return path[0] in _IMAGES or any(".".join(path[:end]) in paths for end in range(1, len(path) + 1))


@define(eq=False)
class TrailerFamily:
    """Layouts of the same last fields, those first that were met most; `head` are the fields in front of them."""

    names: tuple[str, ...]
    head: pa.StructType
    layouts: list[_Matcher] = field(factory=list)

    def add(self, layouts: Sequence[TrailerLayout], wanted: WantedFields) -> bool:
        """Take in layouts; tell whether any was new. Those longest not met are given up for them."""
        known = {one.layout for one in self.layouts}
        new = [_Matcher.of(layout, wanted) for layout in layouts if layout not in known]
        self.layouts = [*new, *self.layouts][:_MAX_LAYOUTS]
        return bool(new)

    def match(self, texts: ByteWindows, rows: Ints) -> tuple[list[MatchedMessages], Ints]:
        """Find the messages among `rows` that end in one of the layouts; the second result are the others."""
        matches: list[MatchedMessages] = []
        for matcher in self.layouts:
            if not len(rows):
                break
            one, hit = matcher.match(texts, rows)
            if one is not None:
                matches.append(one)
                rows = rows[~hit]
        counts = {id(one.layout): len(one.rows) for one in matches}
        self.layouts = sorted(self.layouts, key=lambda matcher: -counts.get(id(matcher.layout), 0))
        return matches, rows


@frozen(eq=False)
class _Matcher:
    """A layout with bytes in front that may be any, so that a line of the matrix is whole words.

    `places` are where in a line the characters of each wanted leaf stand.
    """

    layout: TrailerLayout
    low: Bytes
    span: Bytes
    places: tuple[tuple[TrailerLeaf, slice | Ints], ...]

    @classmethod
    def of(cls, layout: TrailerLayout, wanted: WantedFields) -> _Matcher:
        more = -len(layout) % _WORD
        low, high = (
            np.frombuffer(any_ * more + edge, np.uint8) for any_, edge in ((b"\0", layout.low), (b"\xff", layout.high))
        )
        places = ((leaf, _as_slice(layout.places(leaf) + more)) for leaf in wanted.leaves(layout))
        return cls(layout, low, high - low, tuple(places))

    def match(self, texts: ByteWindows, rows: Ints) -> tuple[MatchedMessages | None, Mask]:
        """Find the messages among `rows` that end in this layout; the second result marks them."""
        hit = self._preselect(texts, rows)
        rows = rows[hit]
        if not len(rows):
            return None, hit
        view, width = texts.view, len(self.low)
        lines = np.lib.stride_tricks.as_strided(view, (len(view) - width + 1, width), (1, 1), writeable=False)
        starts, step = texts.ends[rows] - width, max(_CHUNK_BYTES // width, 1)
        same: list[Mask] = []
        values: dict[Path, list[Lines]] = {leaf.path: [] for leaf, _ in self.places}
        for low in range(0, len(rows), step):
            matrix = lines[starts[low : low + step]]
            inside = (matrix - self.low) <= self.span
            same.append(np.bitwise_and.reduce(inside.view(np.uint64), axis=1) == _ALL_TRUE)
            fitting: Mask | slice = slice(None) if same[-1].all() else same[-1]
            for leaf, places in self.places:
                values[leaf.path].append(np.ascontiguousarray(matrix[:, places][fitting]))
        hit[hit] = chosen = np.concatenate(same)
        if not chosen.any():
            return None, hit
        whole = {path: np.concatenate(some) for path, some in values.items()}
        return MatchedMessages(self.layout, rows[chosen], whole), hit

    def _preselect(self, texts: ByteWindows, rows: Ints) -> Mask:
        """Tell which messages may end in this layout, by a few bytes; in front of it is one field at least."""
        view, starts = texts.view, texts.starts[rows]
        at = texts.ends[rows] - len(self.layout)
        likely: Mask = at - (len(self.low) - len(self.layout)) > starts + 1
        starts, at = starts[likely], at[likely]
        first = self.layout.low
        likely[likely] = (view[at] == first[0]) & (view[at + 2] == first[2]) & (view[starts + 1] == _QUOTE)
        return likely


def _as_slice(places: Ints) -> slice | Ints:
    """A slice where places follow each other: that is no copy until it has to be one."""
    if len(places) and places[-1] - places[0] + 1 != len(places):
        return places
    return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 0)


@frozen(eq=False)
class MatchedMessages:
    """Messages of one layout: their rows, and by path the characters of the values, a line for each row."""

    layout: TrailerLayout
    rows: Ints
    values: dict[Path, Lines]

    def columns(self, kind: pa.StructType) -> pa.StructArray:
        """Return the values as a struct of the trailer's fields, null where they are not wanted."""
        leaves = {leaf.path: leaf for leaf in self.layout.leaves if leaf.path in self.values}
        fields = [one for one in kind if one.name in self.layout.names]
        return self._build_struct(fields, (), leaves)

    def _build_struct(self, fields: Sequence[pa.Field], path: Path, leaves: dict[Path, TrailerLeaf]) -> pa.StructArray:
        columns = [self._column(one.type, (*path, one.name), leaves) for one in fields]
        if not fields:
            return pa.array([{}] * len(self.rows), pa.struct([]))
        return pa.StructArray.from_arrays(columns, fields=list(fields))

    def _column(self, kind: pa.DataType, path: Path, leaves: dict[Path, TrailerLeaf]) -> pa.Array:
        if path in self.layout.objects:
            return self._build_struct(list(kind), path, leaves)
        leaf = leaves.get(path)
        if leaf is None:
            return pa.nulls(len(self.rows), kind)
        if leaf.form in ("true", "false"):
            return pa.repeat(pa.scalar(leaf.form == "true"), len(self.rows))
        text = _to_text(self.values[path])
        return text if leaf.form == "text" else text.cast(kind)


def _to_text(lines: Lines) -> pa.StringArray:
    """Lines of as many characters each as texts."""
    count, width = lines.shape
    bounds = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.StringArray.from_buffers(count, pa.py_buffer(bounds), pa.py_buffer(lines))
