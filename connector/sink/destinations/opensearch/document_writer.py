"""Rows and winners of one task -> documents of indexes. Runs on executors.

A change's version is made of its dedup value (`__source_ts_ns` by default, see `fold.document_versions`); where
events have none, or tell of deletes by tombstones only, it is the record's offset (docs/decisions/0020).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types.nested_columns import read_columns
from connector.iceberg.write.table_writer import TableWriter
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.opensearch.bulk.actions import ROWS_PER_STEP, WriteOptions
from connector.opensearch.bulk.bulk_processor import DocumentCounts
from connector.opensearch.bulk.document_sender import DocumentSender
from connector.opensearch.documents.document_ids import build_document_ids, build_record_ids
from connector.opensearch.documents.document_lookup import StoredDocument
from connector.opensearch.documents.json_values import to_json_texts
from connector.opensearch.indexes.index_meta import VersionSource
from connector.opensearch.indexes.index_templates import TIMESTAMP_FIELD
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.settings.opensearch.connection import BulkSettings, ConnectionSettings
from connector.sink.convert.key_change_headers import mark_key_changes
from connector.sink.destinations.deleted_keys import DeletedKeyLog, build_deleted_key_rows
from connector.sink.destinations.opensearch import key_changes
from connector.sink.destinations.opensearch.key_changes import RECORD_BITS, KnownFields, WaitingKeys, record_ids
from connector.sink.destinations.opensearch.moved_documents import DocumentMove, MovedDocument, find_moves
from connector.sink.destinations.opensearch.timestamps import TimestampRule
from connector.sink.destinations.soft_deletes import mark_deleted
from connector.sink.fold.unavailable_values import find_unavailable_columns, mark_unavailable
from connector.sink.job.shuffle import pack
from connector.sink.model.change_rows import ChangeBatch, ChangeOrder, FoldedChanges, gather
from connector.sink.model.driver_output import (
    DeadLettersFound,
    DeletedKeysWritten,
    KeysWaiting,
    RecordsCounted,
    Written,
)
from connector.sink.model.plan import BatchPlan, DeadLetterRef, TablePlan
from connector.sink.model.task_output import OutputKind, TaskOutput
from serde.arrays import Ints, Mask
from serde.events.changes import DELETED_COLUMN
from serde.events.source_positions import NO_VALUE


@attrs.frozen
class IndexTarget:
    """How documents of one table are written: where to, what their versions are, and where a time is needed for it."""

    style: WriteOptions
    versions: VersionSource
    dating: TimestampRule | None = None


@attrs.frozen
class OpenSearchWriterFactory:
    """Opens bulk requests to indexes, by table name; with `memory` hard deletes are recorded there."""

    connection: ConnectionSettings
    bulk: BulkSettings
    targets: Mapping[str, IndexTarget]
    memory: DeletedKeyLog | None = None
    report: bool = True
    follows_keys: bool = True

    def open(self, plan: BatchPlan, label: str) -> OpenSearchTaskWriter:
        """Begin in one task; `label` goes into the names of files of deleted keys."""
        return OpenSearchTaskWriter(self, plan, label)


class OpenSearchTaskWriter:
    """The bulk requests of one task, for any number of indexes."""

    def __init__(self, factory: OpenSearchWriterFactory, plan: BatchPlan, label: str) -> None:
        """Send nothing yet."""
        self._factory, self._plan, self._label = factory, plan, label
        self._deleted: TableWriter | None = None
        self._places = {rank: at for at, rank in plan.ranks.items()}
        self.dead: dict[int, str] = {}
        self.stale: set[int] = set()
        self._refused = 0
        self._sender = DocumentSender(factory.connection, factory.bulk, self._refuse, self.stale.add)
        self._counts: dict[int, int] = {}

    def append(self, table: TablePlan, part: ChangeBatch) -> Iterator[TaskOutput]:
        """Index every event as a document of its own, named by where its record stands."""
        if len(part):
            dating = self._target(table).dating
            if dating is None:
                self._add(self._target(table).style, part, table)
            else:
                self._add_dated(dating, part, table)
        yield from ()

    def _add(self, style: WriteOptions, part: ChangeBatch, table: TablePlan) -> None:
        self._count(table, len(part))
        self._sender.index_rows(style, part.rows, self._place_ids(part), None, record_ids(part))

    def _add_dated(self, dating: TimestampRule, part: ChangeBatch, table: TablePlan) -> None:
        times, style = dating.times(part, self._plan.dedup_column), self._target(table).style
        if times.null_count:
            for tag in record_ids(part)[np.asarray(times.is_null())].tolist():
                self._refuse(tag, "the event has no time, and its index needs one")
            at = np.flatnonzero(times.is_valid())
            part, times = part.take(at), times.take(pa.array(at))
        if dating.pattern is None:
            for start in range(0, len(part), ROWS_PER_STEP):
                own = part.take(np.arange(start, min(start + ROWS_PER_STEP, len(part))))
                stamps = to_json_texts(times.slice(start, ROWS_PER_STEP))
                self._count(table, len(own))
                self._sender.put(
                    style, {**_to_json_texts(own), TIMESTAMP_FIELD: stamps}, self._place_ids(own), None, record_ids(own)
                )
            return
        names = dating.pattern.indexes(style.index, times).dictionary_encode()
        for code, name in enumerate(names.dictionary.to_pylist()):
            own = part.take(np.flatnonzero(np.asarray(names.indices) == code))
            self._add(attrs.evolve(style, index=name), own, table)

    def _place_ids(self, part: ChangeBatch) -> pa.StringArray:
        topic, partition = self._places[int(part.order.partition[0])]
        return build_record_ids(topic, partition, pa.array(part.order.offset))

    def find_key_changes(
        self, table: TablePlan, part: ChangeBatch, run: ConsumerRecords
    ) -> tuple[ChangeBatch, Iterator[TaskOutput]]:
        """Mark creates that a change of key made, and tell the reducers of both keys of each other."""
        if run.old_key is not None:
            part = mark_key_changes(part, run.offset, run.old_key)
        return part, key_changes.announce_key_changes(part, run, table)

    def upsert(self, table: TablePlan, folded: FoldedChanges, elsewhere: Sequence[bytes] = ()) -> Iterator[TaskOutput]:
        """Put the winners' rows into the index, and take out, or mark, the documents of deleted keys.

        Keys that rows leave, or come to without all their values, are handed on: other tasks have a part in them
        (`waiting_keys`).
        """
        if not table.keep_deletes:
            self._remember(folded, table)
        if elsewhere:
            keys = key_changes.read_key_changes(elsewhere, table, table.layout.rows)
            waiting = {move.code for move in self.find_moves(folded, keys, table)}
            waiting |= self._find_unmoved(folded, keys, table)
            if waiting:
                folded, part = split_keys(folded, waiting, table.layout.keys)
                yield TaskOutput.of(KeysWaiting(table.index))
                yield TaskOutput(OutputKind.WAITING_KEYS, WaitingKeys(pack(part), elsewhere).pack(), table.index)
        self.write(folded, table)

    def find_moves(
        self, folded: FoldedChanges, keys: key_changes.KeyChanges, table: TablePlan
    ) -> Iterator[DocumentMove]:
        """Return the documents that move."""
        return find_moves(folded, keys, table, versioned=self._versioned(table))

    def write(self, folded: FoldedChanges, table: TablePlan) -> None:
        """Write winners; values that events leave out are those of the documents that there are."""
        gone = np.concatenate([part.deleted for part in folded.parts])[folded.winners]
        missing = mark_unavailable(folded)
        for part in gather(folded.parts, folded.winners[~gone & ~missing]):
            self._index(part, table)
        for part in gather(folded.parts, folded.winners[missing]):
            unsent, ids = find_unavailable_columns(part), self._ids(part, table)
            self.fill(part, ids, unsent, self._held(table, ids.to_pylist(), list(unsent)), table)
        self.take_out(folded, table)

    def take_out(self, folded: FoldedChanges, table: TablePlan) -> None:
        """Take out, or mark, the documents of the winners that are gone."""
        gone = np.concatenate([part.deleted for part in folded.parts])[folded.winners]
        if table.keep_deletes:
            marked = gone & (folded.images >= 0)
            for part in build_soft_deletes(folded, marked):
                self._index(part, table)
            for part in gather(folded.parts, folded.winners[gone & ~marked]):
                self._mark(part, table)
        else:
            for part in gather(folded.parts, folded.winners[gone]):
                self._count(table, len(part))
                ids, versions = self._ids(part, table), self._versions(part, table)
                self._sender.delete(self._target(table).style, ids, versions, record_ids(part))

    def _remember(self, folded: FoldedChanges, table: TablePlan) -> None:
        """Note the keys that are gone, with the versions of their deletes: the cluster forgets them."""
        if self._factory.memory is None or not table.remembers:
            return
        rows = build_deleted_key_rows(folded, table, self._plan.ranks, self._factory.memory)
        if len(rows):
            self._deleted = self._deleted or TableWriter(self._factory.memory.layout, self._label)
            self._deleted.write_rows(rows)

    def _index(self, part: ChangeBatch, table: TablePlan) -> None:
        self._count(table, len(part))
        ids, versions = self._ids(part, table), self._versions(part, table)
        self._sender.index_rows(self._target(table).style, part.rows, ids, versions, record_ids(part))

    def _mark(self, part: ChangeBatch, table: TablePlan) -> None:
        """Mark the documents of tombstones deleted, those that there are: what they hold is only in the index."""
        names = [name for name in part.rows.schema.names if name not in (*table.layout.keys, DELETED_COLUMN)]
        ids = self._ids(part, table)
        found = self._held(table, ids.to_pylist(), names)
        there = np.flatnonzero([document is not None for document in found])
        if len(there):
            kept = part.take(there)
            kept = attrs.evolve(kept, rows=mark_deleted(kept.rows))
            wanted = {name: np.ones(len(there), np.bool_) for name in names}
            known = [found[row] for row in there]
            self.fill(kept, ids.take(pa.array(there)), wanted, known, table)

    def close(self) -> Iterator[TaskOutput]:
        """Wait until every document is settled, and tell what became of them."""
        counts = self.finish()
        if self._deleted is not None:
            yield from (TaskOutput.of(DeletedKeysWritten(file)) for file in self._deleted.close())
        for index in self._counts:
            yield TaskOutput.of(Written(index, {}))
        if self._counts:
            yield TaskOutput.of(Written(next(iter(self._counts)), attrs.asdict(counts)))
        if self._factory.report and self._refused:
            yield TaskOutput.of(RecordsCounted(TaskMetrics(dead=self._refused)))
            letters = (self._letter(tag, reason) for tag, reason in self.dead.items())
            yield TaskOutput.of(DeadLettersFound(tuple(letters)))

    def finish(self) -> DocumentCounts:
        """Wait until every document is settled, and let go of the threads."""
        return self._sender.finish()

    def _count(self, table: TablePlan, documents: int) -> None:
        self._counts[table.index] = self._counts.get(table.index, 0) + documents

    def move_document(
        self, move: DocumentMove, moved: MovedDocument | None, document: StoredDocument | None, table: TablePlan
    ) -> MovedDocument | None:
        """Put a document under its new key, a version below that of the delete which says so, and return it.

        Args:
            move: the change of key.
            moved: what came to its old key in the batch.
            document: what is there under the old key.
            table: the table's plan.
        """
        versioned, names = self._versioned(table), table.layout.columns.names
        held: KnownFields | None = document if move.is_of_life(document, versioned=versioned) else None
        whole = held is not None or not move.needs_document
        if moved is not None and moved.old == move.came_from and move.document_counts and (moved.whole or held is None):
            held, whole = moved, moved.whole or whole
        if held is None and (move.row is None or (move.suspect and move.document_counts)):
            return None
        texts = {} if move.row is None else _to_json_texts(move.row)
        if held is not None:
            key_changes.fill_texts(texts, names if move.row is None else move.lacking, held)
        key_changes.set_key(texts, move.place, table)
        # What lacks something must not go over what an earlier try of the batch put there whole.
        version = np.array([max(move.version - 1 - (not whole), 0) if versioned else 0])
        ids = self._ids(move.place, table)
        style, tag = self._target(table).style, record_ids(move.place)
        self._sender.put(style, texts, ids, version, tag, counted=False)
        missing = () if held is not None and whole else move.lacking
        fields = {name: text[0].as_py() for name, text in texts.items() if name not in missing}
        return MovedDocument(move.old, move.version, {name: orjson.loads(text) for name, text in fields.items()}, whole)

    def settle(self) -> None:
        """Wait until everything that was sent is settled."""
        self._sender.settle()

    def _find_unmoved(self, folded: FoldedChanges, keys: key_changes.KeyChanges, table: TablePlan) -> set[int]:
        """Return the codes of keys whose rows leave values out, and whose documents are not under them yet."""
        missing = folded.winners[mark_unavailable(folded)]
        if not keys.before or not len(missing):
            return set()
        codes = key_changes.read_codes(folded, table.layout.keys)[missing]
        ids = [text for part in gather(folded.parts, missing) for text in self._ids(part, table).to_pylist()]
        at = [place for place, text in enumerate(ids) if text in keys.before]
        found, versioned = self.hold(table, [ids[place] for place in at], _marks(table)), self._versioned(table)
        return {
            int(codes[place])
            for place in at
            if not keys.before[ids[place]].has_moved(found[ids[place]], versioned=versioned)
        }

    def find_documents(
        self, ids: list[str], names: list[str], folded: FoldedChanges, keys: key_changes.KeyChanges, table: TablePlan
    ) -> list[StoredDocument | None]:
        """Return the documents of rows that waited: by now they are where they belong."""
        versioned, origins = self._versioned(table), [keys.before.get(text) for text in ids]
        fields = [*names, *_marks(table)]
        own = self.hold(table, ids, fields)
        before = self.hold(table, [one.id for one in origins if one is not None], fields)
        since = key_changes.find_last_deletes(folded, ids, table) if versioned else {}
        return [
            own[text]
            if origin is None
            else origin.choose(own[text], before[origin.id], since.get(text, NO_VALUE), versioned=versioned)
            for text, origin in zip(ids, origins, strict=True)
        ]

    def hold(self, table: TablePlan, ids: Sequence[str], fields: Sequence[str]) -> dict[str, StoredDocument | None]:
        """Return what there is of each id: its version, and the values of these columns."""
        return dict(zip(ids, self._held(table, ids, fields), strict=True))

    def _held(self, table: TablePlan, ids: Sequence[str], fields: Sequence[str]) -> list[StoredDocument | None]:
        return self._sender.fetch_stored(self._target(table).style, ids, fields)

    def find_stale(self, table: TablePlan, folded: FoldedChanges) -> set[int]:
        """Return what winners are known by (`record_ids`) that the index would not take: it has newer documents."""
        stale = set[int]()
        for part in gather(folded.parts, folded.winners):
            found = self._held(table, self._ids(part, table).to_pylist(), ())
            stored = np.array([NO_VALUE if document is None else document.version for document in found], np.int64)
            stale.update(record_ids(part)[stored > self._versions(part, table)].tolist())
        return stale

    def fill(
        self,
        part: ChangeBatch,
        ids: pa.StringArray,
        unsent: Mapping[str, Mask],
        found: Sequence[KnownFields | None],
        table: TablePlan,
    ) -> None:
        """Send rows whose unsent values, by column, are those of documents."""
        texts = _to_json_texts(part)
        for name, mask in unsent.items():
            known = np.array([document is not None and name in document.fields for document in found])
            rows = np.flatnonzero(mask & known).tolist()
            values = [orjson.dumps(document.fields[name]) for row in rows if (document := found[row]) is not None]
            chosen = np.zeros(len(part), np.bool_)
            chosen[rows] = True
            texts[name] = pc.replace_with_mask(texts[name], chosen, pa.array(values, pa.binary()).cast(pa.string()))
        self._count(table, len(part))
        self._sender.put(self._target(table).style, texts, ids, self._versions(part, table), record_ids(part))

    def _ids(self, part: ChangeBatch, table: TablePlan) -> pa.StringArray:
        return build_document_ids(read_columns(part.rows, table.layout.keys))

    def _versions(self, part: ChangeBatch, table: TablePlan) -> Ints:
        """Return the version of each change; one without a dedup value has that of the document that it changes."""
        target = self._target(table)
        if target.versions == "offset":
            return part.order.offset
        versions = part.order.dedup.copy()
        unknown_at = np.flatnonzero(part.order.dedup == NO_VALUE)
        if len(unknown_at):
            ids = self._ids(part, table).take(pa.array(unknown_at)).to_pylist()
            found = self._held(table, ids, ())
            versions[unknown_at] = [0 if document is None else document.version for document in found]
        return versions

    def _versioned(self, table: TablePlan) -> bool:
        """Tell whether the versions of documents tell the order of all changes, and not that of one partition alone."""
        return self._target(table).versions == "source"

    def _target(self, table: TablePlan) -> IndexTarget:
        return self._factory.targets[table.layout.name]

    def _refuse(self, tag: int, reason: str) -> None:
        self._refused += 1
        if len(self.dead) <= self._plan.max_letters:
            self.dead[tag] = reason

    def _letter(self, tag: int, reason: str) -> DeadLetterRef:
        topic, partition = self._places[tag >> RECORD_BITS]
        return DeadLetterRef(topic, partition, tag & ((1 << RECORD_BITS) - 1), "TASK_PUT", reason)


def build_soft_deletes(folded: FoldedChanges, which: Mask) -> Iterator[ChangeBatch]:
    """Return the rows that some winners stand on, marked deleted, in the place of the winners."""
    rows = folded.images[which]
    sequence = np.argsort(rows)
    order = ChangeOrder.concat([part.order for part in folded.parts]).take(folded.winners[which][sequence])
    start = 0
    for part in gather(folded.parts, rows[sequence]):
        own = np.arange(start, start + len(part))
        yield attrs.evolve(part, rows=mark_deleted(part.rows), order=order.take(own))
        start += len(part)


def _to_json_texts(part: ChangeBatch) -> dict[str, pa.StringArray]:
    return {name: to_json_texts(part.rows.column(name)) for name in part.rows.schema.names}


def split_keys(folded: FoldedChanges, codes: Collection[int], keys: Sequence[str]) -> tuple[FoldedChanges, ChangeBatch]:
    """Take all changes of some keys out, by their codes; give the rest's, and those."""
    every = key_changes.read_codes(folded, keys)
    chosen = np.isin(every, list(codes))
    out = chosen[folded.winners]
    rest = attrs.evolve(folded, winners=folded.winners[~out], images=folded.images[~out])
    return rest, ChangeBatch.concat(gather(folded.parts, np.flatnonzero(chosen)))


def _marks(table: TablePlan) -> list[str]:
    """Return the column that tells a document whose row is gone."""
    return [name for name in table.layout.columns.names if name == DELETED_COLUMN]
