"""Decoder -> fold -> writers: a table's changes on their way, columns of rows with what decides between them.

map task:    decoded rows -> `ChangeBatch`s -> folded -> packed by bucket (`job.shuffle`)
reduce task: unpacked `ChangeBatch`s -> folded -> files or documents
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Protocol

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connector.iceberg.keys.key_codes import encode_keys
from connector.iceberg.types.nested_columns import read_column
from serde.arrays import Ints, Mask
from serde.events.images.unavailable_value import find_unavailable
from serde.events.kinds.operations import NO_OP, TOMBSTONE
from serde.events.positions.log_positions import LogPositions

MAX_CONCAT_BYTES = 8 * 1024**2
"""Arrow bytes of parts up to which copying them together pays."""

MASKS = ("deleted", "image", "suspect", "truncated", "candidate")
"""The columns of a `ChangeBatch` that mark changes."""

RECORD_BITS = 44
"""A record's number holds a topic-partition's rank and an offset: offsets of 44 bits last for 17 trillion records."""

OP_KEY_CHANGE = ord("C")
"""The operation of a create that is known to be an update of another key's row; the others are Debezium's."""


@attrs.frozen(eq=False)
class ChangeOrder:
    """What decides between changes of one key; one entry per change, all of equal length.

    `partition` is the rank of the change's topic-partition among all of the batch, by topic and number.
    `dedup` is the dedup value as it came. `date` is the same where it proves something: a precise date, and none of a
    read. `place` is where the change stands in its source's log (`positions.log_positions`); reads say nothing
    of it.
    """

    partition: Ints
    offset: Ints
    dedup: Ints
    date: Ints
    place: LogPositions
    op: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.offset)

    def take(self, indices: Ints) -> ChangeOrder:
        """Return the same columns at `indices`."""
        return ChangeOrder(*(getattr(self, field.name)[indices] for field in attrs.fields(ChangeOrder)))

    def slice(self, start: int, length: int) -> ChangeOrder:
        """Return a range of the same columns, without a copy."""
        stop = start + length
        return ChangeOrder(*(getattr(self, field.name)[start:stop] for field in attrs.fields(ChangeOrder)))

    @staticmethod
    def concat(parts: Sequence[ChangeOrder]) -> ChangeOrder:
        """Join orders end to end."""
        return ChangeOrder(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in attrs.fields(ChangeOrder)))

    @property
    def records(self) -> Ints:
        """The numbers of the records, one each: the rank of the topic-partition, and the offset."""
        numbers: Ints = (self.partition << RECORD_BITS) | self.offset
        return numbers

    @property
    def operations(self) -> Counter[str]:
        """How many changes of each operation there are, by its letter; tombstones have none."""
        counts = np.bincount(self.op)
        told = (code for code in np.flatnonzero(counts).tolist() if code not in (NO_OP, TOMBSTONE))
        return Counter({chr(code): int(counts[code]) for code in told})

    @property
    def bare(self) -> Mask:
        """Which changes tell nothing of themselves: tombstones."""
        mask: Mask = self.op == TOMBSTONE
        return mask


class KeyDecision(Protocol):
    """Which change of each key wins, and why (`fold.winners.Decision`)."""

    @property
    def codes(self) -> Ints:
        """Which key each change is of."""

    def rows_to_keep(self, *, numbered: bool = False) -> Ints:
        """Return the changes that a later fold with more changes needs."""


def _mark_none(changes: Mask) -> Mask:
    return np.zeros(len(changes), np.bool_)


@attrs.frozen(eq=False)
class ChangeBatch:
    """Changes of one table, aligned: the table's columns, their order, and what kind of change each is.

    `deleted` marks changes after which the key is gone; `image` those that carry a row (a tombstone does not);
    `suspect` those that may be older than what the table holds (`fold.watermarks`); `truncated` those of them that are
    known to be deletes from before a truncate; `candidate` those that are compared with the table's row
    (`fold.late_events`). `patches` has, for changes that tell of a document only what became
    other, the text that says so (`images.document_patches`): the rows of these have no more than that. `numbers` are
    what the versions of documents were made of (`fold.document_versions`): map tasks know them, and hand them on only
    where two keys meet.
    """

    rows: pa.RecordBatch
    order: ChangeOrder
    deleted: Mask
    image: Mask
    suspect: Mask = attrs.field(default=attrs.Factory(lambda self: _mark_none(self.deleted), takes_self=True))
    truncated: Mask = attrs.field(default=attrs.Factory(lambda self: _mark_none(self.deleted), takes_self=True))
    candidate: Mask = attrs.field(default=attrs.Factory(lambda self: _mark_none(self.deleted), takes_self=True))
    patches: pa.StringArray | None = attrs.field(default=None, kw_only=True)
    numbers: Ints | None = attrs.field(default=None, kw_only=True)

    def __len__(self) -> int:
        return self.rows.num_rows

    @cached_property
    def size_bytes(self) -> int:
        """Arrow bytes of the rows; looking at every buffer costs more than few rows do."""
        return int(self.rows.nbytes)

    @cached_property
    def unsent_values(self) -> Mapping[str, Mask]:
        """Columns with values that look like ones that were not sent, and where (`images.unavailable_value`)."""
        masks = ((n, find_unavailable(c)) for n, c in zip(self.rows.schema.names, self.rows.columns, strict=True))
        return {name: mask for name, mask in masks if mask is not None}

    def take(self, indices: Ints) -> ChangeBatch:
        """Return the same columns at `indices`."""
        places = pa.array(indices)
        patches = None if self.patches is None else self.patches.take(places)
        numbers = None if self.numbers is None else self.numbers[indices]
        masks = (getattr(self, name)[indices] for name in MASKS)
        return ChangeBatch(self.rows.take(places), self.order.take(indices), *masks, patches=patches, numbers=numbers)

    def slice(self, start: int, length: int) -> ChangeBatch:
        """Return a range of the same columns, without a copy."""
        patches = None if self.patches is None else self.patches.slice(start, length)
        masks = (getattr(self, name)[start : start + length] for name in MASKS)
        return ChangeBatch(self.rows.slice(start, length), self.order.slice(start, length), *masks, patches=patches)

    @staticmethod
    def concat(parts: Sequence[ChangeBatch]) -> ChangeBatch:
        """Join parts end to end; at least one."""
        rows = pa.concat_batches([part.rows for part in parts])
        masks = (np.concatenate([getattr(part, name) for part in parts]) for name in MASKS)
        order = ChangeOrder.concat([part.order for part in parts])
        return ChangeBatch(rows, order, *masks, patches=concat_patches(parts))


@attrs.frozen(eq=False)
class FoldedChanges:
    """The outcome of a fold over several parts; indices count through the parts in turn.

    `images[i]` is the change whose row stands for `winners[i]`, or -1 where none is known. `decision` is why.
    """

    parts: tuple[ChangeBatch, ...]
    winners: Ints
    images: Ints
    decision: KeyDecision | None = None


def concat_patches(parts: Sequence[ChangeBatch]) -> pa.StringArray | None:
    """Return the patches of all parts in turn, null for other changes; None where there are none."""
    if all(part.patches is None for part in parts):
        return None
    nulls = (pa.nulls(len(part), pa.string()) for part in parts)
    return pa.concat_arrays(
        [no if part.patches is None else part.patches for part, no in zip(parts, nulls, strict=True)]
    )


def concat_small(parts: Sequence[ChangeBatch]) -> list[ChangeBatch]:
    """Make one part of several small ones: what is done per part and column costs more than few rows do."""
    if len(parts) < 2 or sum(part.size_bytes for part in parts) > MAX_CONCAT_BYTES:  # noqa: PLR2004
        return list(parts)
    return [ChangeBatch.concat(parts)]


def compute_key_codes(parts: Sequence[ChangeBatch], keys: Sequence[str]) -> Ints:
    """Return each change of all parts in turn a number that is equal for equal keys."""
    return encode_keys([pa.concat_arrays([read_column(part.rows, name) for part in parts]) for name in keys])


def gather(parts: Sequence[ChangeBatch], indices: Ints) -> list[ChangeBatch]:
    """Take changes by ascending indices that count through the parts in turn; parts without any are left out."""
    return [part if len(rows) == len(part) else part.take(rows) for part, rows in locate(parts, indices)]


def locate(parts: Sequence[ChangeBatch], indices: Ints) -> Iterator[tuple[ChangeBatch, Ints]]:
    """Return the parts that such indices are of, and which rows of each."""
    start = 0
    for part in parts:
        first, last = np.searchsorted(indices, [start, start + len(part)])
        if last > first:
            yield part, indices[first:last] - start
        start += len(part)
