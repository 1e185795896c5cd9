"""Changes of some keys, and what is told of changed keys -> which documents move where. Pure rules, on executors.

A key has several lives: its row goes on under another key, and another row may come to it, by a change of key too. Each
delete of the batch that names a new key ends such a life, and moves what it had: the last row that the batch knows of
it, and for what that row leaves out, the document. Of which life the document under a key is its version tells.

Versions are those of a key in its topic-partition, and tell nothing of another key's: there changes may have been put
above others (`fold.document_versions`). Between keys the changes' own numbers count (docs/decisions/0084).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from connector.opensearch.documents.document_lookup import StoredDocument
from connector.sink.destinations.opensearch.write.key_changes import (
    MOVED_BELOW,
    KeyChanges,
    is_marked,
    read_codes,
    to_document_ids,
)
from connector.sink.fold.order.key_runs import mark_run_starts
from connector.sink.fold.order.repeated_changes import mark_repeated
from connector.sink.fold.order.winners import sort_changes
from connector.sink.fold.values.unavailable_values import find_unavailable_columns
from connector.sink.model.change_rows import OP_KEY_CHANGE, RECORD_BITS, ChangeBatch, FoldedChanges, gather
from connector.sink.model.plan import TablePlan
from serde.arrays import Ints
from serde.events.kinds.operations import OP_CREATE, OP_READ
from serde.events.positions.log_positions import FIRST_NUMBER, NO_VALUE, SOURCE_COLUMN


@attrs.frozen(eq=False)
class DocumentMove:
    """A document that goes on under another key.

    `came_from` is the key from which it came to `old` in the batch, if it did. `code` is that of the key which it
    leaves, `version` that of the delete that says so, `number` its own, `since` the least version that a document of
    this life may have: that of the delete which ended the life before, `NO_VALUE` where that was not in the batch.
    `row` is the last row of the life that the batch knows, if any; `lacking` are its columns that no event of the batch
    tells. `document_counts`: the document may have them, as the life did not begin in the batch with all its values.
    `place` is a row that has the new key, and the place of the delete; `log_place` is where the change stands in its
    source's log.
    """

    code: int
    old: str
    new: str
    came_from: str | None
    version: int
    number: int
    since: int
    log_place: tuple[int, ...]
    suspect: bool
    row: ChangeBatch | None
    lacking: tuple[str, ...]
    document_counts: bool
    place: ChangeBatch

    @property
    def needs_document(self) -> bool:
        """Whether the batch does not tell everything."""
        return self.document_counts and (self.row is None or bool(self.lacking))

    def takes(self, moved: MovedDocument | None) -> bool:
        """Tell whether what came to the old key in the batch has all that the batch does not tell otherwise."""
        return moved is not None and moved.whole and moved.old == self.came_from

    def is_of_life(self, document: StoredDocument | None, *, versioned: bool) -> bool:
        """Tell whether a document under the old key is of the life that ends here."""
        if document is None or not self.document_counts:
            return False
        if not versioned:
            return True
        return not is_marked(document) and self.since <= document.version <= self.version


@attrs.frozen(eq=False)
class MovedDocument:
    """A document that came to a key in the batch: the key before, and what is known of it."""

    old: str
    fields: Mapping[str, Any]
    whole: bool


def sort_moves(moves: Iterable[DocumentMove]) -> list[DocumentMove]:
    """Return moves in the order of the source: by place, where all are of one log that tells them; else in Kafka's, and
    among topic-partitions by the greatest number up to there.
    """
    in_order = sorted(moves, key=_kafka_place)
    placed = all(move.log_place[FIRST_NUMBER] != NO_VALUE for move in in_order)
    if placed and len({move.log_place[SOURCE_COLUMN] for move in in_order}) == 1:
        return sorted(in_order, key=lambda move: (move.log_place, move.number))
    most: dict[int, int] = {}
    reached = []
    for move in in_order:
        partition, _ = _kafka_place(move)
        most[partition] = max(move.number, most.get(partition, move.number))
        reached.append(most[partition])
    return [in_order[at] for at in np.argsort(np.array(reached, np.int64), kind="stable")]


def _kafka_place(move: DocumentMove) -> tuple[int, int]:
    return int(move.place.order.partition[0]), int(move.place.order.offset[0])


def split_moves(moves: Iterable[DocumentMove], most: int) -> Iterator[list[DocumentMove]]:
    """Return moves in parts that may be done at once: none needs a document that another moves, or covers."""
    some, touched = list[DocumentMove](), set[str]()
    for move in moves:
        if len(some) >= most or move.old in touched or move.new in touched:
            yield some
            some, touched = [], set()
        some.append(move)
        touched |= {move.old, move.new}
    if some:
        yield some


def find_moves(folded: FoldedChanges, keys: KeyChanges, table: TablePlan, *, versioned: bool) -> Iterator[DocumentMove]:
    """Return the moves of a bucket; those of a key in their order, without what is proven to repeat an older change.

    Cost: a look at all places; of keys that moves leave a sort of their changes, and Python per change.
    """
    leaving = np.array([(partition, offset) for partition, offset in keys.after], np.int64).reshape(-1, 2)
    wanted = np.unique((leaving[:, 0] << RECORD_BITS) | leaving[:, 1])
    every = np.concatenate([part.order.records for part in folded.parts])
    deleted = np.concatenate([part.deleted for part in folded.parts])
    moves = deleted & np.isin(every, wanted)
    if not moves.any():
        return
    codes = read_codes(folded, table.layout.keys)
    at = np.flatnonzero(np.isin(codes, codes[moves]))
    part, own = ChangeBatch.concat(gather(folded.parts, at)), codes[at]
    sequence = sort_changes(own, part.order)
    sorted_order = part.order.take(sequence)
    is_new = ~mark_repeated(np.cumsum(mark_run_starts(own[sequence], sorted_order.partition)), sorted_order)
    # A tombstone repeats the delete before it.
    sequence = sequence[is_new & ~sorted_order.bare] if versioned else sequence
    ids = to_document_ids(part, table)
    for rows in np.split(sequence, np.flatnonzero(np.diff(own[sequence])) + 1):
        yield from _find_moves_of_key(int(own[rows[0]]), part, rows, keys, table, ids, versioned=versioned)


def _find_moves_of_key(
    code: int, part: ChangeBatch, rows: Ints, keys: KeyChanges, table: TablePlan, ids: Sequence[str], *, versioned: bool
) -> Iterator[DocumentMove]:
    last, whole, since, came_from = -1, False, NO_VALUE, None
    for row in rows.tolist():
        origin = keys.find_origin(part, row) if part.order.op[row] == OP_KEY_CHANGE else None
        if origin is not None:
            came_from = origin.id
            # What came with the change has a number of that, and may be below the version of the delete before it.
            since = since if since == NO_VALUE else min(since, origin.number - MOVED_BELOW)
        if part.image[row] and not part.deleted[row]:
            last, whole = row, whole or int(part.order.op[row]) in (OP_CREATE, OP_READ)
        if not part.deleted[row]:
            continue
        version = int(part.order.dedup[row] if versioned else part.order.offset[row])
        new_key = keys.find_new_key(part, row)
        if new_key is not None and (last >= 0 or since == NO_VALUE):
            other, place = new_key
            own = other.take(np.array([place]))
            one = None if last < 0 else part.take(np.array([last]))
            yield DocumentMove(
                code=code,
                old=ids[row],
                new=to_document_ids(own, table)[0],
                came_from=came_from,
                version=version,
                number=int(own.order.dedup[0]),
                since=since,
                log_place=tuple(part.order.place[row].tolist()),
                suspect=bool(part.suspect[row]),
                row=one,
                lacking=() if one is None else tuple(find_unavailable_columns(one)),
                document_counts=not whole,
                place=own,
            )
        last, whole, since, came_from = -1, False, version, None
