"""Rows whose key changed -> documents that lose nothing: what an update did not send moves along. On executors.

Debezium writes a change of key as a delete of the old key and a create of the new one, each of which names the other in
a header. The create leaves out what the update did not send (PostgreSQL's TOASTed values); only the old document has
it, and the delete is about to take that away. So before the delete the document is put under the new key, a version
below the create's; the create, whichever of the two comes first, finds the values under one key or the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

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
from connector.sink.job.shuffle import pack, split_by_bucket, unpack
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import TablePlan
from connector.sink.model.task_output import OutputKind, TaskOutput
from serde.events.source_positions import NO_VALUE

_MOVED_BELOW = 2
"""A document is put under its new key a version below that of the delete, which is right before the create."""

RecordPlace = tuple[int, int]
"""The rank of a record's topic-partition, and its offset."""


@attrs.frozen
class RowOrigin:
    """The document id that a row had before its key changed, and the version of the create that says so."""

    id: str
    version: int

    def is_before(self, document: StoredDocument) -> bool:
        """Tell whether a document under the key before is of the row: later ones are of another row with that key."""
        return self.version == NO_VALUE or document.version < self.version

    def has_moved(self, document: StoredDocument) -> bool:
        """Tell whether a document under the present key is of the row: earlier ones are of another with that key."""
        return self.version == NO_VALUE or document.version >= self.version - _MOVED_BELOW


@attrs.frozen
class KeyChanges:
    """Where rows of a bucket came from, by document id; and under which key (a row of a batch) they went on, by the
    place of the delete that says so: a key may be given anew behind it, and deleted without going anywhere.
    """

    before: Mapping[str, RowOrigin] = attrs.field(factory=dict)
    after: Mapping[RecordPlace, tuple[ChangeBatch, int]] = attrs.field(factory=dict)

    def find_new_key(self, delete: ChangeBatch, row: int) -> tuple[ChangeBatch, int] | None:
        """Return where the row of a key went that a delete takes away; None where it is gone."""
        return self.after.get(_place(delete, row))


def announce_key_changes(part: ChangeBatch, run: ConsumerRecords, table: TablePlan) -> Iterator[TaskOutput]:
    """Tell the reducers of both keys of each other, where a part has changes of key."""
    keys = [(name, table.layout.schema.find_type(name)) for name in table.layout.keys]
    for told, raw in ((b"<", run.old_key), (b">", run.new_key)):
        if raw is None or raw.null_count == len(raw):
            continue
        own = part.take(np.flatnonzero(part.image & ~part.deleted if told == b"<" else part.deleted))
        found = pair_with_other_key(own, run.offset, raw, table)
        if found is None:
            continue
        rows, others = found
        # Both halves are cut alike: the rows are found again by their place in Kafka.
        for bucket, piece in split_by_bucket(rows, keys, table.buckets):
            same = others.take(np.flatnonzero(np.isin(others.order.offset, piece.order.offset)))
            payload = orjson.dumps(len(pack(piece))) + b"\n" + told + pack(piece) + pack(same)
            yield TaskOutput(OutputKind.KEY_CHANGES, payload, table.index, bucket)


def read_key_changes(payloads: Iterable[bytes], table: TablePlan, columns: pa.Schema) -> KeyChanges:
    """Read what was told of the keys of a bucket."""
    before: dict[str, RowOrigin] = {}
    after: dict[RecordPlace, tuple[ChangeBatch, int]] = {}
    for payload in payloads:
        size, _, rest = payload.partition(b"\n")
        told, body, middle = rest[:1], rest[1:], orjson.loads(size)
        own, other = unpack(body[:middle], columns), unpack(body[middle:], columns)
        other = other.take(np.searchsorted(other.order.offset, own.order.offset))
        for row, (here, there) in enumerate(
            zip(_to_document_ids(own, table), _to_document_ids(other, table), strict=True)
        ):
            if told == b"<":
                origin = RowOrigin(there, int(own.order.dedup[row]))
                before[here] = max(origin, before.get(here, origin), key=lambda one: one.version)
            else:
                after[_place(own, row)] = (other, row)
    return KeyChanges(before, after)


def _place(part: ChangeBatch, row: int) -> RecordPlace:
    return int(part.order.partition[row]), int(part.order.offset[row])


def read_document_texts(
    id_: str,
    rows: Mapping[str, tuple[ChangeBatch, int]],
    found: Mapping[str, StoredDocument | None],
    names: Sequence[str],
) -> dict[str, pa.StringArray] | None:
    """Return the JSON text of each field of a document: by the last row of the batch, else as the index has it."""
    if id_ in rows:
        part, row = rows[id_]
        one = part.take(np.array([row]))
        return {name: to_json_texts(one.rows.column(name)) for name in names}
    document = found[id_]
    if document is None:
        return None
    return {name: pa.array([orjson.dumps(document.fields.get(name)).decode()]) for name in names}


def fill_texts(texts: dict[str, pa.StringArray], names: Iterable[str], document: StoredDocument) -> None:
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


def _to_document_ids(part: ChangeBatch, table: TablePlan) -> list[str]:
    return list(build_document_ids(read_columns(part.rows, table.layout.keys)).to_pylist())
