"""Folded changes -> the same with values that an update did not send: those of the change of the key before it.

PostgreSQL sends no TOASTed value that an update did not change; Debezium puts a placeholder there, which must never
overwrite what the table holds. What no change of the key in the batch tells is left for `connector.sink.patch`. So is a
create with placeholders: an update that changed the key comes as a delete of the old key and such a create, both with
the same position in the source's log, and the old key's row has the values. Pure rules.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import pyarrow as pa

from connector.iceberg.codes import key_codes
from connector.sink.fold import NONE, Ints, Mask, Order, first_of_runs
from connector.sink.parts import Folded, Part, gather
from serde.unavailable import unavailable

_CREATE, _READ, _DELETE = ord("c"), ord("r"), ord("d")


def gaps(part: Part) -> dict[str, Mask]:
    """Give the columns of a part that have unsent values, and where.

    A read holds all values, so one that looks like the placeholder is meant; so does a create whose place in the
    source's log is unknown. Deletes hold none.
    """
    result = {}
    for name, column in zip(part.rows.schema.names, part.rows.columns, strict=True):
        found = unavailable(column)
        if found is not None:
            op = part.order.op
            whole = (op == _READ) | (op == _DELETE) | ((op == _CREATE) & (part.order.lsn == NONE))
            found &= part.image & ~whole
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


def unknown(folded: Folded, *, keep_deletes: bool = False) -> Mask:
    """Mark the winners whose row still has unsent values; those of deleted keys only where their rows are kept."""
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
    if not keep_deletes:
        marked &= ~np.concatenate([part.deleted for part in folded.parts])[folded.winners]
    return marked


def parted(folded: Folded, which: Mask, keys: Sequence[str]) -> tuple[Folded, list[Part]]:
    """Take some winners out; give the rest, and the rows of those taken, `deleted` telling whether they are gone.

    A row that goes back to a create has that create's place in the source's log and its operation.
    """
    rest = attrs.evolve(folded, winners=folded.winners[~which], images=folded.images[~which])
    rows = folded.images[which]
    order = np.argsort(rows)
    rows = rows[order]
    gone = np.concatenate([part.deleted for part in folded.parts])[folded.winners[which]][order]
    places = Order.concat([part.order for part in folded.parts])
    first = _creates(folded.parts, places, keys)[rows]
    known = first >= 0
    origin = np.where(known, first, rows)
    taken, start = [], 0
    for part in gather(folded.parts, rows):
        own = slice(start, start + len(part))
        place = attrs.evolve(
            part.order,
            dedup=places.dedup[origin[own]],
            lsn=places.lsn[origin[own]],
            op=np.where(known[own], np.uint8(_CREATE), part.order.op),
        )
        taken.append(attrs.evolve(part, deleted=gone[own], order=place))
        start += len(part)
    return rest, taken


def _creates(parts: Sequence[Part], places: Order, keys: Sequence[str]) -> Ints:
    """For every change the last create of its key up to it, -1 without one."""
    sequence, starts = _by_key(parts, keys)
    made = places.op[sequence] == _CREATE
    last = np.maximum.accumulate(np.where(made, np.arange(len(sequence)), -1))
    result = np.full(len(sequence), -1, np.int64)
    found = last >= starts
    result[sequence[found]] = sequence[last[found]]
    return result


def gone_rows(folded: Folded) -> list[Part]:
    """Give the last rows that the batch knows of keys which it deletes."""
    deleted = np.concatenate([part.deleted for part in folded.parts])
    ops = np.concatenate([part.order.op for part in folded.parts])
    rows = folded.images[(folded.images >= 0) & deleted[folded.winners]]
    return gather(folded.parts, np.sort(rows[ops[rows] != _DELETE]))


def deletes(part: Part) -> Part:
    """Give the deletes among changes whose place in the source's log is known."""
    return part.take(np.flatnonzero((part.order.op == _DELETE) & (part.order.lsn != NONE)))


def _by_key(parts: Sequence[Part], keys: Sequence[str]) -> tuple[Ints, Ints]:
    """Give all changes sorted by key and place, and for each sorted one where its key begins."""
    codes = key_codes([pa.concat_arrays([part.rows.column(name) for part in parts]) for name in keys])
    order = Order.concat([part.order for part in parts])
    sequence = np.lexsort((order.offset, order.partition, order.dedup, codes))
    ordered = codes[sequence]
    return sequence, np.maximum.accumulate(np.where(first_of_runs(ordered), np.arange(len(ordered)), 0))


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
