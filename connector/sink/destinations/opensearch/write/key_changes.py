"""Rows whose key changed -> documents that lose nothing: what an update did not send moves along. On executors.

Debezium writes a change of key as a delete of the old key and a create of the new one, each of which names the other in
a header. The create leaves out what the update did not send (PostgreSQL's TOASTed values); only the old document has
it, and the delete is about to take that away. So before the delete the document is put under the new key, in a version
below the create's; the create, whichever of the two comes first, finds the values under one key or the other.

Where the create has all values, and is in the same batch, nothing has to move: then its key's bucket tells so.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import attrs
import numpy as np
import orjson
import pyarrow as pa

from connector.iceberg.types.nested_columns import read_column, read_columns
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.opensearch.documents.document_ids import build_document_ids
from connector.opensearch.documents.document_lookup import StoredDocument
from connector.opensearch.documents.json_values import to_json_texts
from connector.opensearch.indexes.mapping import name_inner_path
from connector.sink.convert.key_change_headers import pair_with_other_key
from connector.sink.fold.values.unavailable_values import find_unavailable_columns
from connector.sink.job.shuffle import pack, split_by_bucket, unpack
from connector.sink.model.change_rows import ChangeBatch, FoldedChanges, compute_key_codes
from connector.sink.model.plan import TablePlan
from connector.sink.model.task_output import OutputKind, TaskOutput
from serde.arrays import Ints, Mask
from serde.events.changes import DELETED_COLUMN
from serde.events.positions.log_positions import NO_VALUE

MOVED_BELOW = 2
"""A document is put under its new key with a number one less than the delete's, which is right before the create's."""

RecordPlace = tuple[int, int]
"""The rank of a record's topic-partition, and its offset."""

_CAME_FROM, _WENT_TO, _CAME_WHOLE = b"<", b">", b"="
"""What the bucket of a key is told: where its row came from, where it went, that it arrived there with all values."""

_Change = tuple[str, str, int, tuple[int, ...]]
"""What both halves of a change of key tell: the ids of old and new documents, the dedup value, the place in the log."""


@attrs.frozen
class RowOrigin:
    """The document id that a row had before its key changed, the version of the create that says so, and its own number
    (`fold.document_versions`).
    """

    id: str
    version: int
    number: int

    def has_moved(self, document: StoredDocument | None, *, versioned: bool) -> bool:
        """Tell whether a document under the present key is certainly of the row: it came with its change of key."""
        if document is None or not versioned or self.version == NO_VALUE:
            return document is not None
        return not is_marked(document) and document.version >= self.version - MOVED_BELOW

    def choose(
        self, own: StoredDocument | None, before: StoredDocument | None, since: int, *, versioned: bool
    ) -> StoredDocument | None:
        """Return the document that has the row's values: the one under its key, or the one under the key before.

        A later document under the key before is of another row that got it since. One under the present key from
        before `since`, the last delete of that key, is of another row that had it.
        """
        if self.has_moved(own, versioned=versioned) or not versioned:
            return own or before
        if before is not None and not is_marked(before) and before.version < self.version:
            return before
        return own if own is not None and not is_marked(own) and own.version >= since else None


@attrs.frozen
class KeyChanges:
    """Where rows of a bucket came from, by document id, and by the place of the create that says so; and under which
    key (a row of a batch) they went on, by the place of the delete that says so: a key may be given again after it, and
    deleted without going anywhere. Rows that came to their new key with all values went on without their document.
    The rows under which rows went on have the own numbers of the deletes.
    """

    before: Mapping[str, RowOrigin] = attrs.field(factory=dict)
    origins: Mapping[RecordPlace, RowOrigin] = attrs.field(factory=dict)
    after: Mapping[RecordPlace, tuple[ChangeBatch, int]] = attrs.field(factory=dict)

    def find_new_key(self, delete: ChangeBatch, row: int) -> tuple[ChangeBatch, int] | None:
        """Return where the row of a key went that a delete takes away; None where it is gone."""
        return self.after.get(_place(delete, row))

    def find_origin(self, create: ChangeBatch, row: int) -> RowOrigin | None:
        """Return where the row of a create came from; None where it is new."""
        return self.origins.get(_place(create, row))


def is_marked(document: StoredDocument) -> bool:
    """Tell whether a document is that of a row which is gone (soft deletes)."""
    return str(document.fields.get(DELETED_COLUMN, "")).lower() == "true"


def find_last_deletes(folded: FoldedChanges, ids: Iterable[str], table: TablePlan) -> dict[str, int]:
    """Return the version of the last delete of some keys, by document id, that comes before the row they have."""
    wanted, versions = set(ids), dict[str, int]()
    for part in folded.parts:
        deletes = part.take(np.flatnonzero(part.deleted & (part.order.dedup != NO_VALUE)))
        for text, version in zip(to_document_ids(deletes, table), deletes.order.dedup.tolist(), strict=True):
            if text in wanted:
                versions[text] = max(version, versions.get(text, version))
    return versions


@attrs.frozen(eq=False)
class WaitingKeys:
    """All changes of some keys of a bucket, packed, and what their bucket was told of other keys."""

    changes: bytes
    elsewhere: Sequence[bytes]

    def pack(self) -> bytes:
        """Return it as the payload of an output."""
        return pickle.dumps((self.changes, list(self.elsewhere)))

    @staticmethod
    def unpack(payload: bytes) -> WaitingKeys:
        """Read what `pack` made."""
        return WaitingKeys(*pickle.loads(payload))  # noqa: S301 - made by our own tasks


def read_codes(folded: FoldedChanges, keys: Sequence[str]) -> Ints:
    """Return a number for each change that is equal for equal keys."""
    return folded.decision.codes if folded.decision is not None else compute_key_codes(folded.parts, keys)


def announce_key_changes(part: ChangeBatch, run: ConsumerRecords, table: TablePlan) -> Iterator[TaskOutput]:
    """Tell the reducers of both keys of each other, where a part has changes of key."""
    for message, raw in ((_CAME_FROM, run.old_key), (_WENT_TO, run.new_key)):
        if raw is None or raw.null_count == len(raw):
            continue
        own = part.take(np.flatnonzero(part.image & ~part.deleted if message == _CAME_FROM else part.deleted))
        pair = pair_with_other_key(own, run.offset, raw, table)
        if pair is None:
            continue
        yield from _announce(message, *pair, table)
        if message == _CAME_FROM:
            rows, others = pair
            whole = np.flatnonzero(~_mark_lacking(rows))
            if len(whole):
                yield from _announce(_CAME_WHOLE, others.take(whole), rows.take(whole), table)


def _mark_lacking(rows: ChangeBatch) -> Mask:
    """Mark the rows that leave values out."""
    lacking = np.zeros(len(rows), np.bool_)
    for unsent in find_unavailable_columns(rows).values():
        lacking |= unsent
    return lacking


def _announce(message: bytes, rows: ChangeBatch, others: ChangeBatch, table: TablePlan) -> Iterator[TaskOutput]:
    """Tell the bucket of each row's key; both halves are cut alike: rows are found again by their place in Kafka.

    What is sent of the other key has the change's own number, where its key has the version.
    """
    keys = [(name, table.layout.schema.find_type(name)) for name in table.layout.keys]
    if others.numbers is not None:
        others = attrs.evolve(others, order=attrs.evolve(others.order, dedup=others.numbers))
    for bucket, piece in split_by_bucket(rows, keys, table.buckets):
        same = others.take(np.flatnonzero(np.isin(others.order.offset, piece.order.offset)))
        payload = orjson.dumps(len(pack(piece))) + b"\n" + message + pack(piece) + pack(same)
        yield TaskOutput(OutputKind.KEY_CHANGES, payload, table.index, bucket)


def read_key_changes(payloads: Iterable[bytes], table: TablePlan, columns: pa.Schema) -> KeyChanges:
    """Read what was told of the keys of a bucket."""
    before: dict[str, RowOrigin] = {}
    origins: dict[RecordPlace, RowOrigin] = {}
    after: dict[RecordPlace, tuple[ChangeBatch, int]] = {}
    deletes, whole, awaited = dict[RecordPlace, _Change](), Counter[_Change](), set[str]()
    for payload in payloads:
        size, _, rest = payload.partition(b"\n")
        message, body, middle = rest[:1], rest[1:], orjson.loads(size)
        own, other = unpack(body[:middle], columns), unpack(body[middle:], columns)
        other = other.take(np.searchsorted(other.order.offset, own.order.offset))
        if message == _CAME_FROM:
            awaited.update(to_document_ids(own.take(np.flatnonzero(_mark_lacking(own))), table))
        for row, (here, there) in enumerate(
            zip(to_document_ids(own, table), to_document_ids(other, table), strict=True)
        ):
            change = (here, there, int(own.order.dedup[row]), tuple(own.order.place[row].tolist()))
            if message == _CAME_WHOLE:
                whole[change] += 1
            elif message == _CAME_FROM:
                origin = RowOrigin(there, int(own.order.dedup[row]), int(other.order.dedup[row]))
                before[here] = max(origin, before.get(here, origin), key=lambda one: one.version)
                origins[_place(own, row)] = origin
            else:
                after[_place(own, row)] = (other, row)
                deletes[_place(own, row)] = change
    # Several changes that nothing tells apart need as many creates. A key that a document is put under waits with it.
    counts = Counter(deletes.values())
    settled = {
        place for place, change in deletes.items() if counts[change] <= whole[change] and change[0] not in awaited
    }
    return KeyChanges(before, origins, {place: to for place, to in after.items() if place not in settled})


def _place(part: ChangeBatch, row: int) -> RecordPlace:
    return int(part.order.partition[row]), int(part.order.offset[row])


class KnownFields(Protocol):
    """What is known of a document."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """Values by column."""
        ...


def fill_texts(texts: dict[str, pa.StringArray], names: Iterable[str], document: KnownFields) -> None:
    """Set fields that the batch does not tell to what the index has."""
    for name in names:
        if name in document.fields:
            texts[name] = pa.array([orjson.dumps(document.fields[name]).decode()])


def set_key(texts: dict[str, pa.StringArray], part: ChangeBatch, table: TablePlan) -> None:
    """Set the values of a key in the texts of a document; the part is the one row that has it."""
    for name, path in zip(table.layout.keys, table.layout.key_paths, strict=True):
        text = to_json_texts(read_column(part.rows, name))
        if len(path) > 1:
            document = orjson.loads(texts[path[0]][0].as_py()) or {}
            fields = name_inner_path(part.rows.schema.field(path[0]).type, path[1:])
            inside = document
            for around in fields[:-1]:
                inside[around] = inside = inside.get(around) or {}
            inside[fields[-1]] = orjson.loads(text[0].as_py())
            text = pa.array([orjson.dumps(document).decode()])
        texts[path[0]] = text


def to_document_ids(part: ChangeBatch, table: TablePlan) -> list[str]:
    """Return the ids of the documents that changes are about."""
    return list(build_document_ids(read_columns(part.rows, table.layout.keys)).to_pylist())
