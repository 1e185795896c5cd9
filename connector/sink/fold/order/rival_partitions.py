"""Winners of one key in several topic-partitions -> the one that wins. Pure rules.

The source's own position decides if every candidate carries a comparable one, then the timestamps (a read counts no
later than the latest change), then the operation (c > r > u > d), then topic, partition and offset.

A tombstone has the position of the change of its key before it in its partition. So has a read if such changes have
positions: the greatest of them, because the others repeat older ones.
"""

from __future__ import annotations

import attrs
import numpy as np

from connector.sink.fold.order.key_runs import find_last_known, mark_run_starts
from connector.sink.model.change_rows import OP_KEY_CHANGE, ChangeOrder
from serde.arrays import Ints, Mask
from serde.events.kinds.operations import OP_CREATE, OP_DELETE, OP_READ
from serde.events.positions.log_positions import FIRST_NUMBER, NO_VALUE, SOURCE_COLUMN

_OP_PRIORITY = np.zeros(256, dtype=np.int64)
for _rank, _op in enumerate("durc", start=1):
    _OP_PRIORITY[ord(_op)] = _rank
_OP_PRIORITY[OP_KEY_CHANGE] = _OP_PRIORITY[OP_CREATE]


def choose_across_partitions(best: Ints, codes: Ints, order: ChangeOrder) -> Ints:
    """Choose among the winners of several partitions of one key (rule 2)."""
    rivals = np.bincount(codes[best])[codes[best]] > 1
    if not rivals.any():
        return best
    alone, several = best[~rivals], best[rivals]
    several = several[sort_by_rule(several, codes, order)]
    return np.concatenate([alone, several[np.append(mark_run_starts(codes[several])[1:], True)]])


def sort_by_rule(several: Ints, codes: Ints, order: ChangeOrder) -> Ints:
    """Sort changes of different partitions by key, and of one key by rule 2."""
    key = np.unique(codes[several], return_inverse=True)[1]
    count, own = int(key.max()) + 1, _resolve_reads(_resolve_tombstones(several, codes, order), several, codes, order)
    op, place = own.op, own.place
    comparable = ~_any_per_key(key, place[:, FIRST_NUMBER] == NO_VALUE, count)
    source = np.zeros(count, np.int64)
    source[key] = place[:, SOURCE_COLUMN]
    comparable &= ~_any_per_key(key, place[:, SOURCE_COLUMN] != source[key], count)
    where = np.where(comparable[key][:, None], place[:, FIRST_NUMBER:], 0)
    date = np.where(_any_per_key(key, own.dedup == NO_VALUE, count)[key], 0, own.dedup)
    latest = np.full(count, NO_VALUE, np.int64)
    changes = op != OP_READ
    np.maximum.at(latest, key[changes], date[changes])
    date = np.where(latest[key] == NO_VALUE, date, np.minimum(date, latest[key]))
    rank = _OP_PRIORITY[op]
    columns = (own.offset, own.partition, rank, date)
    return np.lexsort((*columns, *(where[:, place] for place in reversed(range(where.shape[1]))), key))


def _resolve_tombstones(several: Ints, codes: Ints, order: ChangeOrder) -> ChangeOrder:
    """Return the order of changes; a tombstone takes that of the change of its key before it in its partition."""
    own = order.take(several)
    bare = own.bare
    if not bare.any():
        return own
    before = order.take(find_last_known(codes, order, ~order.bare)[several])
    return attrs.evolve(
        own,
        dedup=np.where(bare, before.dedup, own.dedup),
        place=np.where(bare[:, None], before.place, own.place),
        op=np.where(bare & (before.op == OP_DELETE), before.op, own.op),
    )


def _resolve_reads(own: ChangeOrder, several: Ints, codes: Ints, order: ChangeOrder) -> ChangeOrder:
    """Return the order of changes; a read takes that of the change of its key and partition furthest in the log.

    This applies if all of these changes are from one log. That change is in what every fold keeps
    (`Decision.rows_to_keep`).
    """
    reads = np.flatnonzero(own.op == OP_READ)
    group = codes * (int(order.partition.max()) + 1) + order.partition
    wanted = group[several[reads]]
    rows = np.flatnonzero((order.place[:, FIRST_NUMBER] != NO_VALUE) & np.isin(group, wanted))
    if not len(rows):
        return own
    place = order.place[rows]
    numbers = (place[:, column] for column in reversed(range(FIRST_NUMBER, place.shape[1])))
    rows = rows[np.lexsort((-order.offset[rows], *numbers, group[rows]))]
    starts = np.flatnonzero(mark_run_starts(group[rows]))
    source = order.place[rows, SOURCE_COLUMN]
    one_log = np.minimum.reduceat(source, starts) == np.maximum.reduceat(source, starts)
    top = rows[np.append(starts[1:], len(rows)) - 1][one_log]
    at = reads[np.isin(wanted, group[top])]
    furthest = order.take(top[np.searchsorted(group[top], group[several[at]])])
    dedup, where, op = own.dedup.copy(), own.place.copy(), own.op.copy()
    dedup[at], where[at], op[at] = furthest.dedup, furthest.place, furthest.op
    return attrs.evolve(own, dedup=dedup, place=where, op=op)


def _any_per_key(key: Ints, mask: Mask, count: int) -> Mask:
    result = np.zeros(count, np.bool_)
    result[key[mask]] = True
    return result
