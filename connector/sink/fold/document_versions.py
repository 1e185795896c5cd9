"""Changes -> the versions of documents. Pure rules on columns; runs on executors (docs/decisions/0024).

OpenSearch keeps the document with the greater version, so a later change must not get a smaller version unless it is
proven to repeat an older change. The version of a change is its own number (its timestamp, or the value of the declared
column), with these exceptions:

- a change not above the greatest version given in its topic-partition before the batch is put above that version;
- a change not above every other change of its key in its partition and batch is put above these;
- a read has no number of its own: it gets the greatest version given before it;
- a change that is proven to repeat an older one keeps its own number: the stored document's version decides;
- a number below zero (-1 stands for no time) is no version: it is 1, that of a repetition 0.

All of this depends only on stored watermarks and the batch, so a batch that is sent again gets the same versions. They
order the changes of one key; between keys the changes' own numbers count (docs/decisions/0084).
"""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connector.iceberg.commit.kafka_offsets import ALL_SOURCES, Watermarks
from connector.runtime.topic_partitions import TopicPartition
from connector.sink.fold.watermarks import GROWN_PARTITION, merge_partitions
from connector.sink.model.change_rows import ChangeOrder, FoldedChanges, compute_key_codes
from serde.arrays import Ints, Mask
from serde.events.kinds.operations import OP_READ
from serde.events.positions.log_positions import NO_VALUE

TOTAL_ORDER_RANGE = 1_000
"""Times in nanoseconds of a clock of microseconds have room for the place in the transaction."""


def derive_versions(dedup: Ints, total_order: Ints, *, nanoseconds: bool) -> Ints:
    """Return dedup values; nanoseconds get the position in the transaction as their last three digits.

    Changes of one transaction share its time, and a clock of microseconds leaves these digits free.
    """
    if not nanoseconds:
        return dedup.copy()
    places = np.where(total_order == NO_VALUE, 0, np.clip(total_order, 0, TOTAL_ORDER_RANGE - 1))
    return np.where((dedup % TOTAL_ORDER_RANGE == 0) & (dedup != NO_VALUE), dedup + places, dedup)


def find_last_versions(
    known: Watermarks, at: TopicPartition, origin: pa.DictionaryArray, *, has_grown: bool = False
) -> Ints:
    """Return the greatest version given before in the topic-partition, for each change's source; `NO_VALUE` for none.

    If partitions were added to the topic, a key may have got its versions in any partition. `has_grown` tells that they
    were since the index was last written to.
    """
    own = known.get(at, {})
    grown = has_grown or (at[0], GROWN_PARTITION) in known
    versions = []
    for name in origin.dictionary.to_pylist():
        marks = [merge_partitions(known, at[0], name)] if grown else [own[n] for n in (name, ALL_SOURCES) if n in own]
        versions.append(max((mark.version for mark in marks), default=NO_VALUE))
    return np.array(versions, np.int64)[np.asarray(origin.indices)]


def assign_versions(own: Ints, before: Ints, op: npt.NDArray[np.uint8], repeats: Mask) -> Ints:
    """Return the versions of changes before other changes of the batch are taken into account.

    Args:
        own: their numbers, `NO_VALUE` where unknown.
        before: as `find_last_versions` says.
        op: operations; a read of a declared column has none here.
        repeats: which are known to repeat older ones.
    """
    risen = np.where(own < before, before + 1, own)
    result = np.where(repeats, own, risen)
    result = np.where(op == OP_READ, np.maximum(before, 0), result)
    result = np.where(result < 0, np.where(repeats, 0, 1), result)
    return np.where(own == NO_VALUE, NO_VALUE, result)


def raise_winner_versions(folded: FoldedChanges, keys: tuple[str, ...]) -> FoldedChanges:
    """Put winners above every other change of their key and partition, unless they repeat older ones.

    A part of a batch never gives a key a greater version than the whole batch, because a batch may be split differently
    after a crash.
    """
    order = ChangeOrder.concat([part.order for part in folded.parts])
    codes = folded.decision.codes if folded.decision is not None else compute_key_codes(folded.parts, keys)
    suspect = np.concatenate([part.suspect for part in folded.parts])
    most = np.full(int(codes.max()) + 1, NO_VALUE, np.int64)
    won = np.full(len(most), -1, np.int64)
    won[codes[folded.winners]] = order.partition[folded.winners]
    others = order.partition == won[codes]
    others[folded.winners] = False
    np.maximum.at(most, codes[others], order.dedup[others])
    at = folded.winners
    at = at[(order.dedup[at] != NO_VALUE) & ~suspect[at] & (order.dedup[at] <= most[codes[at]])]
    if not len(at):
        return folded
    versions = order.dedup.copy()
    versions[at] = most[codes[at]] + 1
    ends = np.cumsum([len(part) for part in folded.parts])
    pieces = np.split(versions, ends[:-1])
    parts = (attrs.evolve(p, order=attrs.evolve(p.order, dedup=v)) for p, v in zip(folded.parts, pieces, strict=True))
    return attrs.evolve(folded, parts=tuple(parts))
