"""Folded changes -> the same with values that an update did not send: those of the change of the key before it.

PostgreSQL sends no TOASTed value that an update did not change; Debezium puts a placeholder there, which must never
overwrite what the table holds. What no change of the batch tells is left for `connector.sink.patch`. Pure rules.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import pyarrow as pa

from connector.sink.fold import Ints, Mask, Order, key_codes
from connector.sink.parts import Folded, Part, gather
from serde.unavailable import unavailable

_FINAL = np.frombuffer(b"crd", np.uint8)
"""Creates and reads hold all values, so a value that looks like the placeholder is meant; deletes hold none."""


def gaps(part: Part) -> dict[str, Mask]:
    """Give the columns of a part that have unsent values, and where."""
    result = {}
    for name, column in zip(part.rows.schema.names, part.rows.columns, strict=True):
        found = unavailable(column)
        if found is not None:
            found &= part.image & ~np.isin(part.order.op, _FINAL)
            if found.any():
                result[name] = found
    return result


def filled(folded: Folded, keys: Sequence[str]) -> Folded:
    """Give unsent values of every change that of the last change of its key before it that has one.

    Cost: a look at the lengths of texts; where there is such a value, a sort of all changes.
    """
    found = [gaps(part) for part in folded.parts]
    names = list(dict.fromkeys(name for each in found for name in each))
    if not names:
        return folded
    sequence, starts = _by_key(folded.parts, keys)
    giving = np.concatenate([part.image & ~part.deleted for part in folded.parts])
    parts = list(folded.parts)
    for name in names:
        none = [np.zeros(len(part), np.bool_) for part in parts]
        unsent = np.concatenate([each.get(name, no) for each, no in zip(found, none, strict=True)])
        source = _sources(unsent, giving & ~unsent, sequence, starts)
        parts = _replaced(parts, name, source)
    return attrs.evolve(folded, parts=tuple(parts))


def unknown(folded: Folded) -> Mask:
    """Mark the winners whose row still has unsent values."""
    sizes = [len(part) for part in folded.parts]
    open_rows = np.zeros(sum(sizes), np.bool_)
    start = 0
    for part, size in zip(folded.parts, sizes, strict=True):
        for mask in gaps(part).values():
            open_rows[start : start + size] |= mask
        start += size
    if not open_rows.any():
        return np.zeros(len(folded.winners), np.bool_)
    marked: Mask = (folded.images >= 0) & open_rows[np.maximum(folded.images, 0)]
    return marked


def parted(folded: Folded, which: Mask) -> tuple[Folded, list[Part]]:
    """Take some winners out; give the rest, and the rows of those taken, `deleted` telling whether they are gone."""
    rest = attrs.evolve(folded, winners=folded.winners[~which], images=folded.images[~which])
    order = np.argsort(folded.images[which])
    rows = folded.images[which][order]
    gone = np.concatenate([part.deleted for part in folded.parts])[folded.winners[which]][order]
    taken, start = [], 0
    for part in gather(folded.parts, rows):
        taken.append(attrs.evolve(part, deleted=gone[start : start + len(part)]))
        start += len(part)
    return rest, taken


def _by_key(parts: Sequence[Part], keys: Sequence[str]) -> tuple[Ints, Ints]:
    """Give all changes sorted by key and place, and for each sorted one where its key begins."""
    codes = key_codes([pa.concat_arrays([part.rows.column(name) for part in parts]) for name in keys])
    order = Order.concat([part.order for part in parts])
    sequence = np.lexsort((order.offset, order.partition, order.dedup, codes))
    ordered = codes[sequence]
    first = np.ones(len(ordered), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return sequence, np.maximum.accumulate(np.where(first, np.arange(len(ordered)), 0))


def _sources(unsent: Mask, giving: Mask, sequence: Ints, starts: Ints) -> Ints:
    """For every change the one whose value it takes: itself, or the last one before it that gives one."""
    place = np.where(giving[sequence], np.arange(len(sequence)), -1)
    last = np.maximum.accumulate(place)
    takes = unsent[sequence] & (last >= starts)
    source = np.arange(len(sequence))
    source[sequence[takes]] = sequence[last[takes]]
    return source


def _replaced(parts: Sequence[Part], name: str, source: Ints) -> list[Part]:
    whole = pa.concat_arrays([part.rows.column(name) for part in parts])
    made = whole.take(pa.array(source))
    result, start = [], 0
    for part in parts:
        position = part.rows.schema.get_field_index(name)
        column = made.slice(start, len(part))
        rows = part.rows.set_column(position, part.rows.schema.field(position), column)
        result.append(attrs.evolve(part, rows=rows))
        start += len(part)
    return result
