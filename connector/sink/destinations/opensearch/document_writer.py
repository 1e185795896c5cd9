"""Rows and winners of one task -> documents of indexes. Runs on executors.

A change's version is made of its dedup value (`__source_ts_ns` by default, see `fold.document_versions`); where
events have none, or tell of deletes by tombstones only, it is the record's offset (docs/decisions/0020).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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
from connector.sink.destinations.opensearch.key_changes import RowOrigin
from connector.sink.destinations.opensearch.timestamps import TimestampRule
from connector.sink.destinations.soft_deletes import mark_deleted
from connector.sink.fold.unavailable_values import find_last_rows, find_unavailable_columns, mark_unavailable
from connector.sink.job.shuffle import pack, unpack
from connector.sink.model.change_rows import ChangeBatch, ChangeOrder, FoldedChanges, gather
from connector.sink.model.destination import TaskWriter
from connector.sink.model.driver_output import DeadLettersFound, DeletedKeysWritten, RecordsCounted, Written
from connector.sink.model.plan import BatchPlan, DeadLetterRef, TablePlan
from connector.sink.model.task_output import TaskOutput
from serde.arrays import Ints, Mask
from serde.events.changes import DELETED_COLUMN
from serde.events.source_positions import NO_VALUE


@attrs.frozen(eq=False)
class DeferredRows:
    """Rows to be completed when the job is through, packed; and for each where it came from."""

    origins: Sequence[RowOrigin]
    rows: bytes


_OFFSET_BITS = 44
"""A tag holds a topic-partition's rank and an offset: offsets of 44 bits last for 17 trillion records."""


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

    def open(self, plan: BatchPlan, label: str) -> TaskWriter:
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
        """Put the winners' rows into the index, and take out, or mark, the documents of deleted keys."""
        gone = np.concatenate([part.deleted for part in folded.parts])[folded.winners]
        keys = (
            key_changes.read_key_changes(elsewhere, table, table.layout.rows) if elsewhere else key_changes.KeyChanges()
        )
        missing = mark_unavailable(folded)
        for part in gather(folded.parts, folded.winners[~gone & ~missing]):
            self._index(part, table)
        if keys.after:
            self._move_documents(folded, gone, keys, table)
        for part in gather(folded.parts, folded.winners[missing]):
            yield from self._complete(part, find_unavailable_columns(part), table, keys.before)
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
            self._remember(folded, table)
        yield from ()

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
            self._fill(kept, ids.take(pa.array(there)), wanted, known, table)

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

    def _move_documents(
        self, folded: FoldedChanges, gone: Mask, keys: key_changes.KeyChanges, table: TablePlan
    ) -> None:
        """Put documents whose keys changed under their new ones, before they are deleted, or marked, under the old."""
        last = list(gather(folded.parts, find_last_rows(folded, table.layout.keys)))
        rows = {text: (part, row) for part in last for row, text in enumerate(self._ids(part, table).to_pylist())}
        lacking = self._find_lacking(last, table)
        for part in gather(folded.parts, folded.winners[gone]):
            ids = self._ids(part, table).to_pylist()
            moves = {row: move for row in range(len(ids)) if (move := keys.find_new_key(part, row)) is not None}
            wanted = list(moves)
            unknown_ids = [
                ids[row] for row in wanted if ids[row] not in rows or ids[row] in lacking or part.suspect[row]
            ]
            names = part.rows.schema.names
            found = dict(zip(unknown_ids, self._held(table, unknown_ids, names), strict=True))
            versions = np.maximum(part.order.dedup, 1) - 1 if self._target(table).versions == "source" else None
            for row in wanted:
                if part.suspect[row] and not _is_before(found.get(ids[row]), part, row):
                    continue
                texts = key_changes.read_document_texts(ids[row], rows, found, names)
                if texts is None:
                    continue
                document, origin = found.get(ids[row]), keys.before.get(ids[row])
                if document is not None and (origin is None or versions is None or origin.has_moved(document)):
                    key_changes.fill_texts(texts, lacking.get(ids[row], ()), document)
                other, place = moves[row]
                own = other.take(np.array([place]))
                key_changes.set_key(texts, own, table)
                version = np.array([0 if versions is None else versions[row]])
                self._sender.put(self._target(table).style, texts, self._ids(own, table), version, record_ids(own))
        self._sender.settle()

    def _find_lacking(self, parts: Sequence[ChangeBatch], table: TablePlan) -> dict[str, list[str]]:
        """Return by document id the columns of rows that no event of the batch tells."""
        lacking: dict[str, list[str]] = {}
        for part in parts:
            unsent = find_unavailable_columns(part)
            ids = self._ids(part, table).to_pylist() if unsent else []
            for name, mask in unsent.items():
                for row in np.flatnonzero(mask).tolist():
                    lacking.setdefault(ids[row], []).append(name)
        return lacking

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

    def complete_deferred(self, table: TablePlan, deferred: DeferredRows) -> None:
        """Complete rows that waited for the documents of their keys before: by now they are where they belong.

        Those are under the present keys; under the ones before where no delete tells that they are gone.
        """
        part, origins = unpack(deferred.rows, table.layout.rows), deferred.origins
        unsent, ids = find_unavailable_columns(part), self._ids(part, table)
        found = self._held(table, ids.to_pylist(), list(unsent))
        before = self._held(table, [one.id for one in origins], list(unsent))
        if self._target(table).versions == "source":
            found = [one if one and origin.has_moved(one) else None for one, origin in zip(found, origins, strict=True)]
            before = [
                one if one and origin.is_before(one) else None for one, origin in zip(before, origins, strict=True)
            ]
        self._fill(part, ids, unsent, [one or other for one, other in zip(found, before, strict=True)], table)

    def _complete(
        self, part: ChangeBatch, unsent: Mapping[str, Mask], table: TablePlan, before: Mapping[str, RowOrigin]
    ) -> Iterator[TaskOutput]:
        """Send rows whose unsent values are those of the documents that there are (PostgreSQL's TOASTed columns).

        `before` tells which rows had another key, and their documents with them. Where those are not under the present
        key yet, another task may be about to put them there: such rows are handed on, to be sent once the job is
        through.
        """
        ids = self._ids(part, table).to_pylist()
        found, origins = self._held(table, ids, list(unsent)), [before.get(text) for text in ids]
        numbered = self._target(table).versions == "source"
        waiting = np.array(
            [
                origin is not None and (one is None or not numbered or not origin.has_moved(one))
                for one, origin in zip(found, origins, strict=True)
            ],
            np.bool_,
        )
        if waiting.any():
            rows = np.flatnonzero(waiting)
            waited = [origin for row in rows.tolist() if (origin := origins[row]) is not None]
            yield TaskOutput.of(Written(table.index, DeferredRows(waited, pack(part.take(rows)))))
            kept = np.flatnonzero(~waiting)
            part, found = part.take(kept), [found[row] for row in kept.tolist()]
            unsent = {name: mask[kept] for name, mask in unsent.items()}
        if len(part):
            self._fill(part, self._ids(part, table), unsent, found, table)

    def _fill(
        self,
        part: ChangeBatch,
        ids: pa.StringArray,
        unsent: Mapping[str, Mask],
        found: Sequence[StoredDocument | None],
        table: TablePlan,
    ) -> None:
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

    def _target(self, table: TablePlan) -> IndexTarget:
        return self._factory.targets[table.layout.name]

    def _refuse(self, tag: int, reason: str) -> None:
        self._refused += 1
        if len(self.dead) <= self._plan.max_letters:
            self.dead[tag] = reason

    def _letter(self, tag: int, reason: str) -> DeadLetterRef:
        topic, partition = self._places[tag >> _OFFSET_BITS]
        return DeadLetterRef(topic, partition, tag & ((1 << _OFFSET_BITS) - 1), "TASK_PUT", reason)


def _is_before(document: StoredDocument | None, part: ChangeBatch, row: int) -> bool:
    """Tell whether a document has not taken a delete of its key in yet: one that comes again moves nothing."""
    return document is not None and document.version < part.order.dedup[row]


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


def record_ids(part: ChangeBatch) -> Ints:
    """Return what a document's change is known by: the rank of its topic-partition, and its offset."""
    made: Ints = (part.order.partition << _OFFSET_BITS) | part.order.offset
    return made
