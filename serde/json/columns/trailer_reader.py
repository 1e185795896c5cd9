"""objects -> wire columns: the last fields of messages, where they are laid out alike, taken over without parsing them.

Messages of one layout (`trailer_layout`) have their values at the same places, so a comparison of bytes says that the
text is that JSON, and values are slices of a matrix. What stands in front of these fields is read by the column reader,
and a message that is laid out otherwise is read by it as a whole: what is accepted, and as what, does not depend on
this. Layouts are learned from a few messages, and kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from attrs import define, evolve, field, frozen

from serde.arrays import Bytes, Ints, Mask
from serde.byte_windows import ByteWindows
from serde.json.columns.column_reader import ColumnReader, ReadResult
from serde.json.columns.head_reader import read_heads
from serde.json.columns.single_numbers import read_single_numbers
from serde.json.columns.trailer_layout import (
    Member,
    Path,
    TrailerLayout,
    TrailerLeaf,
    build_layout,
    fits,
    read_members,
    type_at,
)

_MIN_ROWS, _MIN_TRAILER_BYTES, _MAX_TRAILER_BYTES = 256, 48, 4096
"""Of fewer messages, or shorter fields, not enough is to be had; wider matrices would take memory."""

_SAMPLE = 48
_MAX_SAMPLE_LAYOUTS = 8
"""Fields whose layouts vary more are read with what is in front of them."""

_USUAL_SHARE = 32
"""Where fewer than one in so many messages are of no known layout, none is learned."""

_MAX_LAYOUTS, _MAX_FAMILIES, _MAX_KINDS = 16, 4, 64
_ROUNDS, _PAUSE = 2, 15
_CHUNK_BYTES = 1 << 18
_WORD = 8
Lines = npt.NDArray[np.uint8]
"""A line of bytes for each message."""

_IMAGES = frozenset({"before", "after"})


@frozen(eq=False)
class _Wanted:
    """What is asked for: fields of `kind`, of envelopes only those of these paths; None for all."""

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
            and (paths is None or any(".".join(leaf.path[:end]) in paths for end in range(1, len(leaf.path) + 1)))
        )


@define(eq=False)
class TrailerFamily:
    """Layouts of the same last fields, those first that were met most; `head` are the fields in front of them."""

    names: tuple[str, ...]
    head: pa.StructType
    layouts: list[_Matcher] = field(factory=list)

    def add(self, layouts: Sequence[TrailerLayout], wanted: _Wanted) -> bool:
        """Take in layouts; tell whether any was new. Those longest not met are given up for them."""
        known = {one.layout for one in self.layouts}
        new = [_Matcher.of(layout, wanted) for layout in layouts if layout not in known]
        self.layouts = [*new, *self.layouts][:_MAX_LAYOUTS]
        return bool(new)

    def match(self, texts: ByteWindows, rows: Ints) -> tuple[list[_Matched], Ints]:
        """Find the messages among `rows` that end in one of the layouts; the second result are the others."""
        found: list[_Matched] = []
        for matcher in self.layouts:
            if not len(rows):
                break
            one, hit = matcher.match(texts, rows)
            if one is not None:
                found.append(one)
                rows = rows[~hit]
        counts = {id(one.layout): len(one.rows) for one in found}
        self.layouts = sorted(self.layouts, key=lambda matcher: -counts.get(id(matcher.layout), 0))
        return found, rows


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
    def of(cls, layout: TrailerLayout, wanted: _Wanted) -> _Matcher:
        more = -len(layout) % _WORD
        low, high = (
            np.frombuffer(any_ * more + told, np.uint8) for any_, told in ((b"\0", layout.low), (b"\xff", layout.high))
        )
        places = ((leaf, _as_slice(layout.places(leaf) + more)) for leaf in wanted.leaves(layout))
        return cls(layout, low, high - low, tuple(places))

    def match(self, texts: ByteWindows, rows: Ints) -> tuple[_Matched | None, Mask]:
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
            for leaf, places in self.places:
                values[leaf.path].append(matrix[:, places].copy())
        hit[hit] = chosen = np.concatenate(same)
        if not chosen.any():
            return None, hit
        whole = {path: _pick_lines(some, chosen) for path, some in values.items()}
        return _Matched(self.layout, rows[chosen], whole), hit

    def _preselect(self, texts: ByteWindows, rows: Ints) -> Mask:
        """Tell which messages may end in this layout, by a few bytes; in front of it is one field at least."""
        view, starts = texts.view, texts.starts[rows]
        at = texts.ends[rows] - len(self.layout)
        likely: Mask = at - (len(self.low) - len(self.layout)) > starts + 1
        starts, at = starts[likely], at[likely]
        first = self.layout.low
        likely[likely] = (view[at] == first[0]) & (view[at + 2] == first[2]) & (view[starts + 1] == _QUOTE)
        return likely


def _pick_lines(parts: Sequence[Lines], chosen: Mask) -> Lines:
    whole = np.concatenate(parts)
    return np.ascontiguousarray(whole if chosen.all() else whole[chosen])


def _as_slice(places: Ints) -> slice | Ints:
    """A slice where places follow each other: that is no copy until it has to be one."""
    if len(places) and places[-1] - places[0] + 1 != len(places):
        return places
    return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 0)


_ALL_TRUE = np.uint64(0x0101010101010101)
_QUOTE = ord('"')


@frozen(eq=False)
class _Matched:
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


@define(eq=False)
class _Families:
    """What is known of messages of one type; `pause`: for so many reads nothing is to be learned."""

    all: list[TrailerFamily] = field(factory=list)
    pause: int = 0

    def add(self, head: pa.StructType, layouts: Sequence[TrailerLayout], wanted: _Wanted) -> bool:
        """Take in layouts of the same fields; tell whether any was new."""
        names = layouts[0].names
        family = next((one for one in self.all if one.names == names), None)
        if family is None:
            family = TrailerFamily(names, head)
            self.all = [family, *self.all][:_MAX_FAMILIES]
        return family.add(layouts, wanted)


@define(eq=False)
class TrailerReader:
    """Reads texts as one struct type, as `ColumnReader` does; remembers layouts, by the type.

    wanted: paths of an envelope, images apart, whose values are asked for; None for all.
    """

    wanted: frozenset[str] | None = None
    _known: dict[tuple[pa.StructType, bool], _Families] = field(factory=dict)

    def read(self, texts: ByteWindows, kind: pa.StructType, *, strict: bool, give_up: int | None = None) -> ReadResult:
        """Read everything. strict: a field outside the type fails its row; give_up: see `ColumnReader`."""
        if len(texts) < _MIN_ROWS:
            return ColumnReader(texts, kind, strict, give_up).read()
        numbers = read_single_numbers(texts, kind)
        if numbers is not None:
            return ReadResult([(np.arange(len(texts)), numbers)])
        found, rest = self._match(texts, kind, strict=strict)
        out = ReadResult()
        for family, matched in found:
            left = self._read_matched(family, matched, texts, kind, out, strict=strict, give_up=give_up)
            rest = np.concatenate([rest, left])
        if len(rest):
            rest.sort()
            whole = ColumnReader(texts.pick(rest), kind, strict, give_up).read()
            out.parts.extend((rest[where], array) for where, array in whole.parts)
            out.failed.extend(rest[where] for where in whole.failed)
            out.rest.extend(rest[where] for where in whole.rest)
        return out

    def _match(
        self, texts: ByteWindows, kind: pa.StructType, *, strict: bool
    ) -> tuple[list[tuple[TrailerFamily, list[_Matched]]], Ints]:
        """Find the messages of known layouts; learn where many are of none. The second result are the others."""
        families = self._families(kind, strict=strict)
        rest = np.arange(len(texts))
        found: list[tuple[TrailerFamily, list[_Matched]]] = []
        for turn in range(_ROUNDS + 1):
            for family in families.all:
                matched, rest = family.match(texts, rest)
                if matched:
                    found.append((family, matched))
            enough = len(rest) < max(_MIN_ROWS, len(texts) // _USUAL_SHARE)
            if turn == _ROUNDS or enough or not self._learn(families, texts.pick(rest), kind, strict=strict):
                break
        return found, rest

    def _families(self, kind: pa.StructType, *, strict: bool) -> _Families:
        if (kind, strict) not in self._known and len(self._known) >= _MAX_KINDS:
            self._known.clear()
        return self._known.setdefault((kind, strict), _Families())

    def _learn(self, families: _Families, texts: ByteWindows, kind: pa.StructType, *, strict: bool) -> bool:
        """Learn layouts from some of the texts; tell whether there are new ones."""
        if families.pause:
            families.pause -= 1
            return False
        layouts = learn_layouts(texts, kind, strict=strict)
        head = pa.struct([one for one in kind if layouts and one.name not in layouts[0].names])
        wanted = _Wanted(kind, self.wanted if _is_envelope(kind) else None)
        if not head.num_fields or not families.add(head, layouts, wanted):
            families.pause = _PAUSE
            return False
        return True

    def _read_matched(
        self,
        family: TrailerFamily,
        matched: Sequence[_Matched],
        texts: ByteWindows,
        kind: pa.StructType,
        out: ReadResult,
        *,
        strict: bool,
        give_up: int | None,
    ) -> Ints:
        """Read what is in front of the trailers, and put both together; return the rows where that cannot be."""
        rows, sizes, trailers = _join(matched, kind)
        some = texts.pick(rows)
        # The comma in front of the trailer is read as the end of the object.
        heads = evolve(some, ends=some.ends - sizes + 1)
        reading = read_heads(heads, family.head, strict=strict, give_up=give_up)
        for where, head in reading.parts:
            out.parts.append((rows[where], _put_together(kind, head, _take(trailers, where))))
        left = [rows[where] for where in (*reading.failed, *reading.rest)]
        return np.concatenate(left) if left else np.zeros(0, np.int64)


def _is_envelope(kind: pa.StructType) -> bool:
    names = set(kind.names)
    # A row may have columns of these names; only around images they hold what a connector says.
    told = names >= {"op", "source"} and pa.types.is_struct(kind.field("source").type)
    return told and bool(names & _IMAGES)


def _join(matched: Sequence[_Matched], kind: pa.StructType) -> tuple[Ints, Ints, pa.StructArray]:
    """Return the rows of all layouts in order, how many bytes each trailer has, and their values."""
    arrays = [one.columns(kind) for one in matched]
    if len(matched) == 1:
        return matched[0].rows, np.full(len(matched[0].rows), len(matched[0].layout)), arrays[0]
    rows = np.concatenate([one.rows for one in matched])
    sizes = np.concatenate([np.full(len(one.rows), len(one.layout)) for one in matched])
    order = np.argsort(rows, kind="stable")
    return rows[order], sizes[order], pa.concat_arrays(arrays).take(pa.array(order))


def _take(array: pa.StructArray, where: Ints) -> pa.StructArray:
    if where[-1] - where[0] + 1 == len(where):
        return array.slice(int(where[0]), len(where))
    return array.take(pa.array(where))


def _put_together(kind: pa.StructType, head: pa.StructArray, trailer: pa.StructArray) -> pa.StructArray:
    """Return the rows of both; no row of either is null."""
    columns = {name: part.field(name) for part in (head, trailer) for name in part.type.names}
    return pa.StructArray.from_arrays([columns[one.name] for one in kind], fields=list(kind))


def learn_layouts(texts: ByteWindows, kind: pa.StructType, *, strict: bool) -> list[TrailerLayout]:
    """Return the layouts of the most last fields that few layouts do for, as a sample shows; those first that most
    messages have.
    """
    sample = np.unique(np.linspace(0, len(texts) - 1, min(_SAMPLE, len(texts))).astype(np.int64))
    read = [(text, read_members(text)) for text in (texts.text(int(at)) for at in sample)]
    names = Counter(tuple(member.name for member in members) for _, members in read if members)
    if not names:
        return []
    usual, often = names.most_common(1)[0]
    alike = [
        layout
        for text, members in read
        if tuple(member.name for member in members) == usual
        and (layout := _longest_layout(text, members, kind, strict=strict)) is not None
    ]
    for first in range(1, len(usual)):
        counts = Counter(layout.last(len(usual) - first) for layout in alike if len(layout.names) >= len(usual) - first)
        if 4 * counts.total() >= 3 * often and len(counts) <= _MAX_SAMPLE_LAYOUTS:
            chosen = [layout for layout, _ in counts.most_common()]
            return chosen if len(chosen[0]) >= _MIN_TRAILER_BYTES else []
    return []


def _longest_layout(
    text: bytes, members: Sequence[Member], kind: pa.StructType, *, strict: bool
) -> TrailerLayout | None:
    """Return the layout of as many of the last fields as it can have; never of the first."""
    first = len(members)
    while (
        first > 1
        and len(text) - members[first - 1].start <= _MAX_TRAILER_BYTES
        and fits(members[first - 1], text, kind, strict=strict)
    ):
        first -= 1
    return build_layout(text, members[first:]) if first < len(members) else None
