"""Rows and winners of one task -> documents of indexes. Runs on executors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs
import numpy as np
import pyarrow as pa

from connector.iceberg.write.table_writer import TableWriter
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.settings.opensearch.connection import BulkSettings, ConnectionSettings
from connector.sink.convert.key_change_headers import mark_key_changes
from connector.sink.destinations.deleted_keys import DeletedKeyLog, build_deleted_key_rows
from connector.sink.destinations.opensearch.write.document_mover import DocumentMover
from connector.sink.destinations.opensearch.write.document_requests import DocumentRequests, IndexTarget, find_ids
from connector.sink.destinations.opensearch.write.event_documents import EventDocuments
from connector.sink.destinations.opensearch.write.key_changes import (
    WaitingKeys,
    announce_key_changes,
    read_codes,
    read_key_changes,
)
from connector.sink.destinations.soft_deletes import mark_deleted
from connector.sink.fold.values.unavailable_values import find_unavailable_columns, mark_unavailable
from connector.sink.job.shuffle import pack
from connector.sink.model.change_rows import ChangeBatch, ChangeOrder, FoldedChanges, gather
from connector.sink.model.driver_output import (
    DeadLettersFound,
    DeletedKeysWritten,
    KeysWaiting,
    RecordsCounted,
    Written,
)
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.task_output import OutputKind, TaskOutput
from serde.arrays import Mask
from serde.events.changes import DELETED_COLUMN
from serde.events.positions.log_positions import NO_VALUE


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
    """The documents of one task, for any number of indexes."""

    def __init__(self, factory: OpenSearchWriterFactory, plan: BatchPlan, label: str) -> None:
        """Send nothing yet."""
        self._factory, self._plan, self._label = factory, plan, label
        self._deleted: TableWriter | None = None
        self.requests = DocumentRequests(factory.connection, factory.bulk, factory.targets, plan)
        self.mover = DocumentMover(self.requests)
        self._events = EventDocuments(self.requests, plan)

    def append(self, table: TablePlan, part: ChangeBatch) -> Iterator[TaskOutput]:
        """Index every event as a document of its own, named by where its record stands."""
        if len(part):
            self._events.add(part, table)
        yield from ()

    def find_key_changes(
        self, table: TablePlan, part: ChangeBatch, run: ConsumerRecords
    ) -> tuple[ChangeBatch, Iterator[TaskOutput]]:
        """Mark creates that a change of key made, and tell the reducers of both keys of each other."""
        if run.old_key is not None:
            part = mark_key_changes(part, run.offset, run.old_key)
        return attrs.evolve(part, numbers=None), announce_key_changes(part, run, table)

    def upsert(self, table: TablePlan, folded: FoldedChanges, elsewhere: Sequence[bytes] = ()) -> Iterator[TaskOutput]:
        """Put the winners' rows into the index, and take out, or mark, the documents of deleted keys.

        Keys that rows leave, or come to without all their values, are handed on: other tasks have a part in them
        (`waiting_keys`).
        """
        if not table.keep_deletes:
            self._remember(folded, table)
        if elsewhere:
            keys = read_key_changes(elsewhere, table, table.layout.rows)
            waiting = {move.code for move in self.mover.find_moves(folded, keys, table)}
            waiting |= self.mover.find_unmoved(folded, keys, table)
            if waiting:
                folded, part = split_keys(folded, waiting, table.layout.keys)
                yield TaskOutput.of(KeysWaiting(table.index))
                yield TaskOutput(OutputKind.WAITING_KEYS, WaitingKeys(pack(part), elsewhere).pack(), table.index)
        self.write(folded, table)

    def write(self, folded: FoldedChanges, table: TablePlan) -> None:
        """Write winners; values that events leave out are those of the documents that there are."""
        is_deleted = np.concatenate([part.deleted for part in folded.parts])[folded.winners]
        missing = mark_unavailable(folded)
        for part in gather(folded.parts, folded.winners[~is_deleted & ~missing]):
            self.requests.index(part, table)
        for part in gather(folded.parts, folded.winners[missing]):
            unsent, ids = find_unavailable_columns(part), find_ids(part, table)
            self.requests.fill(part, ids, unsent, self.requests.find(table, ids.to_pylist(), list(unsent)), table)
        self.take_out(folded, table)

    def take_out(self, folded: FoldedChanges, table: TablePlan) -> None:
        """Take out, or mark, the documents of the winners that are gone."""
        is_deleted = np.concatenate([part.deleted for part in folded.parts])[folded.winners]
        if table.keep_deletes:
            marked = is_deleted & (folded.images >= 0)
            for part in build_soft_deletes(folded, marked):
                self.requests.index(part, table)
            for part in gather(folded.parts, folded.winners[is_deleted & ~marked]):
                self._mark(part, table)
        else:
            for part in gather(folded.parts, folded.winners[is_deleted]):
                self.requests.delete(part, table)

    def find_stale(self, table: TablePlan, folded: FoldedChanges) -> set[int]:
        """Return the numbers of winners' records that the index would not take: it has newer documents."""
        stale = set[int]()
        for part in gather(folded.parts, folded.winners):
            documents = self.requests.find(table, find_ids(part, table).to_pylist(), ())
            stored = np.array([NO_VALUE if document is None else document.version for document in documents], np.int64)
            stale.update(part.order.records[stored > self.requests.find_versions(part, table)].tolist())
        return stale

    def close(self) -> Iterator[TaskOutput]:
        """Wait until every document is settled, and tell what became of them."""
        counts, indexes = self.requests.finish(), list(self.requests.documents)
        if self._deleted is not None:
            yield from (TaskOutput.of(DeletedKeysWritten(file)) for file in self._deleted.close())
        for index in indexes:
            yield TaskOutput.of(Written(index, {}))
        if indexes:
            yield TaskOutput.of(Written(indexes[0], attrs.asdict(counts)))
        if self._factory.report and self.requests.refused:
            yield TaskOutput.of(RecordsCounted(TaskMetrics(dead=self.requests.refused)))
            yield TaskOutput.of(DeadLettersFound(self.requests.build_letters()))

    def _remember(self, folded: FoldedChanges, table: TablePlan) -> None:
        """Note the keys that are gone, with the versions of their deletes: the cluster forgets them."""
        if self._factory.memory is None or not table.remembers:
            return
        rows = build_deleted_key_rows(folded, table, self._plan.ranks, self._factory.memory)
        if len(rows):
            self._deleted = self._deleted or TableWriter(self._factory.memory.layout, self._label)
            self._deleted.write_rows(rows)

    def _mark(self, part: ChangeBatch, table: TablePlan) -> None:
        """Mark the documents of tombstones deleted, those that there are: what they hold is only in the index."""
        names = [name for name in part.rows.schema.names if name not in (*table.layout.keys, DELETED_COLUMN)]
        ids = find_ids(part, table)
        stored = self.requests.find(table, ids.to_pylist(), names)
        found_rows = np.flatnonzero([document is not None for document in stored])
        if len(found_rows):
            kept = part.take(found_rows)
            kept = attrs.evolve(kept, rows=mark_deleted(kept.rows))
            wanted = {name: np.ones(len(found_rows), np.bool_) for name in names}
            known = [stored[row] for row in found_rows]
            self.requests.fill(kept, ids.take(pa.array(found_rows)), wanted, known, table)


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


def split_keys(folded: FoldedChanges, codes: Collection[int], keys: Sequence[str]) -> tuple[FoldedChanges, ChangeBatch]:
    """Take all changes of some keys out, by their codes; give the rest's, and those."""
    every = read_codes(folded, keys)
    chosen = np.isin(every, list(codes))
    out = chosen[folded.winners]
    rest = attrs.evolve(folded, winners=folded.winners[~out], images=folded.images[~out])
    return rest, ChangeBatch.concat(gather(folded.parts, np.flatnonzero(chosen)))
