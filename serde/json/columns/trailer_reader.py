"""objects -> wire columns: the last fields of messages, where they are laid out alike, taken over without parsing them.

Messages of one layout (`trailer_layout`) have their values at the same places, so a comparison of bytes says that the
text is that JSON, and values are slices of a matrix. What stands in front of these fields is read by the column reader,
and a message that is laid out otherwise is read by it as a whole: what is accepted, and as what, does not depend on
this. Layouts are learned from a few messages, and kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from attrs import define, evolve, field

from serde.arrays import Ints
from serde.byte_windows import ByteWindows
from serde.json.columns.column_reader import ColumnReader, ReadResult
from serde.json.columns.head_reader import read_heads
from serde.json.columns.single_numbers import read_single_numbers
from serde.json.columns.trailer_layout import TrailerLayout
from serde.json.columns.trailer_learning import learn_layouts
from serde.json.columns.trailer_matching import MatchedMessages, TrailerFamily, WantedFields

_MIN_ROWS = 256
"""Of fewer messages not enough is to be had."""

_USUAL_SHARE = 32
"""Where fewer than one in so many messages are of no known layout, none is learned."""

_MAX_FAMILIES, _MAX_KINDS = 4, 64
_ROUNDS, _PAUSE = 2, 15

_IMAGES = frozenset({"before", "after"})


@define(eq=False)
class _Families:
    """What is known of messages of one type; `pause`: for so many reads nothing is to be learned."""

    all: list[TrailerFamily] = field(factory=list)
    pause: int = 0

    def add(self, head: pa.StructType, layouts: Sequence[TrailerLayout], wanted: WantedFields) -> bool:
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
        matches, rest = self._match(texts, kind, strict=strict)
        out = ReadResult()
        for family, matched in matches:
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
    ) -> tuple[list[tuple[TrailerFamily, list[MatchedMessages]]], Ints]:
        """Find the messages of known layouts; learn where many are of none. The second result are the others."""
        families = self._families(kind, strict=strict)
        rest = np.arange(len(texts))
        matches: list[tuple[TrailerFamily, list[MatchedMessages]]] = []
        for turn in range(_ROUNDS + 1):
            for family in families.all:
                matched, rest = family.match(texts, rest)
                if matched:
                    matches.append((family, matched))
            enough = len(rest) < max(_MIN_ROWS, len(texts) // _USUAL_SHARE)
            if turn == _ROUNDS or enough or not self._learn(families, texts.pick(rest), kind, strict=strict):
                break
        return matches, rest

    def _families(self, kind: pa.StructType, *, strict: bool) -> _Families:
        key = (kind, strict)
        families = self._known.get(key)  # a type's hash is that of its text: it is asked for once
        if families is None:
            if len(self._known) >= _MAX_KINDS:
                self._known.clear()
            families = self._known[key] = _Families()
        return families

    def _learn(self, families: _Families, texts: ByteWindows, kind: pa.StructType, *, strict: bool) -> bool:
        """Learn layouts from some of the texts; tell whether there are new ones."""
        if families.pause:
            families.pause -= 1
            return False
        layouts = learn_layouts(texts, kind, strict=strict)
        head = pa.struct([one for one in kind if layouts and one.name not in layouts[0].names])
        wanted = WantedFields(kind, self.wanted if _is_envelope(kind) else None)
        if not head.num_fields or not families.add(head, layouts, wanted):
            families.pause = _PAUSE
            return False
        return True

    def _read_matched(
        self,
        family: TrailerFamily,
        matched: Sequence[MatchedMessages],
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
    has_source = names >= {"op", "source"} and pa.types.is_struct(kind.field("source").type)
    return has_source and bool(names & _IMAGES)


def _join(matched: Sequence[MatchedMessages], kind: pa.StructType) -> tuple[Ints, Ints, pa.StructArray]:
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
