"""messages -> where the values of each field are: all messages take their next field of the lowest number in one step.

Serializers write fields in the order of their numbers, so that a step finds one field of nearly all messages.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from attrs import define, field

from serde.arrays import Ints
from serde.cursor import NEEDS_ROW_READER, OUTSIDE_SCHEMA, Cursor, Words
from serde.protobuf.schemas.codec import FIXED32, FIXED64, SIZED, VARINT

_DONE = np.iinfo(np.int64).max
_MAX_TAG = 2**32 - 1
_FEW_MESSAGES, _MANY_STEPS = 32, 64
"""So few messages that go on after more than so many steps beyond their fields are read one by one."""

_NO_WORDS, _NO_INTS = np.zeros(0, np.uint64), np.zeros(0, np.int64)


@define(eq=False)
class Occurrences:
    """Values of one field and wire type, by ascending place: their messages (of the cursor), where they are, and the
    bits of numbers or the sizes of windows.
    """

    owners: Ints
    places: Ints
    words: Words
    sizes: Ints

    @classmethod
    def none(cls) -> Occurrences:
        """No value."""
        return cls(_NO_INTS, _NO_INTS, _NO_WORDS, _NO_INTS)


@define(eq=False)
class _Steps:
    owners: list[Ints] = field(factory=list)
    places: list[Ints] = field(factory=list)
    words: list[Words] = field(factory=list)
    sizes: list[Ints] = field(factory=list)

    def join(self) -> Occurrences:
        words = np.concatenate(self.words) if self.words else _NO_WORDS
        sizes = np.concatenate(self.sizes) if self.sizes else _NO_INTS
        if len(self.owners) == 1:
            return Occurrences(self.owners[0], self.places[0], words, sizes)
        owners, places = np.concatenate(self.owners), np.concatenate(self.places)
        order = np.lexsort((places, owners))
        return Occurrences(
            owners[order], places[order], words[order] if len(words) else words, sizes[order] if len(sizes) else sizes
        )


def scan_messages(at: Cursor, wanted: Mapping[int, frozenset[int]]) -> dict[int, dict[int, Occurrences]]:
    """Go through the messages of a cursor; return what was found by field number and wire type.

    wanted: wire types by field number; a field with none of them is bad, one that is not named is passed over (a
    writer may keep fields that its schema does not know). Cost: some twenty steps of numpy per field.
    """
    steps_of: dict[int, dict[int, _Steps]] = {}
    tags = np.full(len(at), _DONE)
    _read_tags(at, np.arange(len(at)), tags)
    steps = 0
    while True:
        tag = int(tags.min(initial=_DONE))
        if tag == _DONE:
            break
        index = np.flatnonzero(tags == tag)
        steps += 1
        if steps > len(wanted) + _MANY_STEPS and len(index) <= _FEW_MESSAGES:
            at.fail(index, NEEDS_ROW_READER)
            tags[index] = _DONE
            continue
        _read_values(at, index, tag, wanted, steps_of)
        _read_tags(at, index, tags)
    return {number: {kind: steps.join() for kind, steps in kinds.items()} for number, kinds in steps_of.items()}


def _read_tags(at: Cursor, index: Ints, tags: Ints) -> None:
    """Read the next tag of the messages at `index`, `_DONE` for those that end."""
    tags[index] = _DONE
    index = index[at.pos[index] < at.end[index]]
    if not len(index):
        return
    below = at.pick(index)
    raw = below.unsigned()
    kind = raw & np.uint64(7)
    wrong = (raw >> np.uint64(3) == 0) | (raw > _MAX_TAG)
    wrong |= (kind != VARINT) & (kind != FIXED64) & (kind != SIZED) & (kind != FIXED32)
    wrong &= below.end != below.piece.void
    if wrong.any():
        below.fail(wrong, OUTSIDE_SCHEMA)
    at.put(index, below)
    alive = below.end != below.piece.void
    tags[index[alive]] = raw[alive].astype(np.int64)


def _read_values(
    at: Cursor, index: Ints, tag: int, wanted: Mapping[int, frozenset[int]], steps: dict[int, dict[int, _Steps]]
) -> None:
    number, kind = tag >> 3, tag & 7
    kinds = wanted.get(number)
    if kinds is not None and kind not in kinds:
        at.fail(index, OUTSIDE_SCHEMA)
        return
    below, words, sizes = at.pick(index), _NO_WORDS, _NO_INTS
    places = below.pos
    if kind == VARINT:
        words = below.unsigned()
    elif kind == SIZED:
        places, sizes = below.windows(below.unsigned().view(np.int64))
    else:
        size = 8 if kind == FIXED64 else 4
        words = below.piece.load(below.fixed(size))
    at.put(index, below)
    if kinds is None:
        return
    into = steps.setdefault(number, {}).setdefault(kind, _Steps())
    into.owners.append(index)
    into.places.append(places.copy())
    if kind == SIZED:
        into.sizes.append(sizes)
    else:
        into.words.append(words)
