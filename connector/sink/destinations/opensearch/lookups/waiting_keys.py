"""Keys that rows leave or come to, by changes of key -> their documents, once all tasks are through.

A row may get several keys in a batch, keys may be swapped, one may be given to another row: which document is whose
depends on the order of the source, and each key is another task's. So such keys wait, with all their changes, and one
task does what the source did, in its order. Each document is put under its next key before anything takes it away, so
that a batch that comes again after a crash finds it.

A document that moves to a key which was deleted since would stay there, where the cluster has forgotten that delete, or
forgets it while the batch lasts. So where nothing is at the new key, and the batch has nothing that comes behind the
move, the task asks for the key's remembered deletes, and begins once it has them (docs/decisions/0091).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack

import attrs
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.state.deleted_keys_table import DeletedKeysTable
from connector.iceberg.types.nested_columns import read_columns
from connector.opensearch.bulk.actions import ROWS_PER_STEP
from connector.sink.destinations.deleted_keys import keys_to_text
from connector.sink.destinations.opensearch.deleted_documents import remember_deleted_keys
from connector.sink.destinations.opensearch.lookups.remembered_deletes import ask_deletes, find_deletes, unpack_deletes
from connector.sink.destinations.opensearch.write.document_writer import OpenSearchTaskWriter, OpenSearchWriterFactory
from connector.sink.destinations.opensearch.write.key_changes import (
    KeyChanges,
    KnownFields,
    WaitingKeys,
    find_last_deletes,
    read_codes,
    read_key_changes,
    to_document_ids,
)
from connector.sink.destinations.opensearch.write.moved_documents import (
    DocumentMove,
    MovedDocument,
    sort_moves,
    split_moves,
)
from connector.sink.fold.values.unavailable_values import find_unavailable_columns, mark_unavailable
from connector.sink.job.compaction import fold_changes
from connector.sink.job.shuffle import unpack
from connector.sink.model import task_output
from connector.sink.model.change_rows import ChangeBatch, FoldedChanges, gather
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.result import JobResult
from connector.sink.model.task_output import OutputKind, Task
from serde.arrays import Mask
from serde.events.positions.log_positions import NO_VALUE

WAITING_LABEL = "waiting"


def waiting_task(plan: BatchPlan, table: TablePlan, writers: OpenSearchWriterFactory, *, asks: bool) -> Task:
    """Return the task that writes what waited: outputs of kind WAITING_KEYS, and of DELETES_FOUND -> outputs.

    With `asks` it writes nothing where it has to know remembered deletes, and asks for them.
    """

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting, deletes = list[WaitingKeys](), dict[str, int]()
        for kind, _, _, payload in (row for batch in batches for row in task_output.read_rows(batch)):
            if kind == OutputKind.WAITING_KEYS:
                waiting.append(WaitingKeys.unpack(payload.to_pybytes()))
                continue
            for key, version in unpack_deletes(payload):
                deletes[key] = max(version, deletes.get(key, version))
        if not waiting:
            return
        writer = writers.open(plan, f"{plan.label}-{WAITING_LABEL}")
        documents = _WaitingDocuments(writer, table, waiting, deletes)
        wanted = documents.find_wanted_deletes() if asks and table.remembers else []
        if wanted:
            yield from task_output.to_batches(ask_deletes(pa.array(wanted, pa.string()), table))
        else:
            documents.write()
        yield from task_output.to_batches(writer.close())

    return task


class _WaitingDocuments:
    """The documents of one table that waited; `moved` are those that came to a key and were not asked for yet."""

    def __init__(
        self,
        writer: OpenSearchTaskWriter,
        table: TablePlan,
        waiting: Sequence[WaitingKeys],
        deletes: Mapping[str, int],
    ) -> None:
        self._writer, self._table = writer, table
        elsewhere = [one for each in waiting for one in each.elsewhere]
        self._keys: KeyChanges = read_key_changes(elsewhere, table, table.layout.rows)
        self._folded = fold_changes([unpack(each.changes, table.layout.rows) for each in waiting], table)
        self._codes = read_codes(self._folded, table.layout.keys)
        self._moved: dict[str, MovedDocument] = {}
        self._open = self._find_open_rows()
        self._moves = sort_moves(writer.mover.find_moves(self._folded, self._keys, table))
        self._gone = self._find_gone(deletes) if deletes else {}

    def find_wanted_deletes(self) -> list[str]:
        """Return the keys, as texts, to which documents move, and that may have been deleted since.

        None of those whose row waits for the document, or of which the batch has a change that waits too and is known
        to be new: it is written once the document is there. Nor of those that have a document, whose version tells.
        """
        moves = {move.new: move for move in self._moves if move.new not in self._open}
        later = self._find_new_changes() if moves else set[str]()
        places = [text for text in moves if text not in later]
        if not places:
            return []
        stored = self._writer.requests.find_by_id(self._table, places, ())
        return list(self._find_key_texts([moves[text] for text in places if stored[text] is None]).values())

    def _find_new_changes(self) -> set[str]:
        parts = (part.take(np.flatnonzero(~part.suspect)) for part in self._folded.parts)
        return {text for part in parts for text in to_document_ids(part, self._table)}

    def _find_key_texts(self, moves: Sequence[DocumentMove]) -> dict[str, str]:
        """Return the new keys of moves as the table of deleted keys has them, by the ids of their documents."""
        if not moves:
            return {}
        keys = read_columns(ChangeBatch.concat([move.place for move in moves]).rows, self._table.layout.keys)
        return dict(zip((move.new for move in moves), keys_to_text(keys).to_pylist(), strict=True))

    def _find_gone(self, deletes: Mapping[str, int]) -> dict[str, int]:
        """Return the versions of remembered deletes, by the ids of the documents of new keys.

        Without those that wait here: they are done behind the moves that they end.
        """
        texts = self._find_key_texts(self._moves)
        known = {one: deletes[text] for one, text in texts.items() if text in deletes}
        own = find_last_deletes(self._folded, known, self._table)
        return {one: version for one, version in known.items() if version > own.get(one, NO_VALUE)}

    def write(self) -> None:
        """Do with documents what the source did: each goes on under its next key, then the old one goes.

        Rows that leave values out are completed as soon as nothing comes to their key any more.
        """
        moves = self._moves
        to_leave = Counter(move.old for move in moves)
        to_come = to_leave + Counter(move.new for move in moves)
        for some in split_moves(moves, ROWS_PER_STEP):
            to_leave.subtract(move.old for move in some)
            self._move(some, to_leave)
            to_come.subtract(one for move in some for one in (move.old, move.new))
            # What comes to a key later is for a row of the next batch.
            self._writer.take_out(self._select({move.code for move in some if not to_leave[move.old]}), self._table)
            self._complete([one for move in some for one in (move.old, move.new) if not to_come[one]])
            self._writer.requests.settle()
        self._complete(list(self._open))
        deleted = np.concatenate([part.deleted for part in self._folded.parts])[self._folded.winners]
        rest = ~mark_unavailable(self._folded) & ~(
            deleted & np.isin(self._codes[self._folded.winners], list({move.code for move in moves}))
        )
        self._writer.write(self._take(rest), self._table)

    def _move(self, some: Sequence[DocumentMove], to_leave: Mapping[str, int]) -> None:
        arrivals = {move.old: self._moved.pop(move.old, None) for move in some}
        ids_to_find = [move.old for move in some if not move.takes(arrivals[move.old])]
        stored = self._writer.requests.find_by_id(self._table, ids_to_find, self._table.layout.columns.names)
        for move in some:
            if self._gone.get(move.new, NO_VALUE) > move.number:
                continue
            number, known = self._find_number(move), stored.get(move.old)
            document = self._writer.mover.move_document(move, number, arrivals[move.old], known, self._table)
            # Most are never asked for: a task has no room for all of them.
            if document is not None and (to_leave.get(move.new) or move.new in self._open):
                self._moved[move.new] = document
        self._writer.requests.settle()

    def _find_number(self, move: DocumentMove) -> int:
        """Return what the document of a move goes below: the create that it is for, which has at least the delete's own
        number. Where the batch has it for a row that waits for the document, it was put above others as much as that.
        """
        origin, row = self._keys.before.get(move.new), self._open.get(move.new)
        if origin is None or row is None or origin.id != move.old:
            return move.number
        return min(move.number + origin.version - origin.number, int(row.order.dedup[0]))

    def _find_open_rows(self) -> dict[str, ChangeBatch]:
        """Return the rows that leave values out, by the ids of their documents."""
        missing = self._folded.winners[mark_unavailable(self._folded)]
        parts = gather(self._folded.parts, missing)
        return {
            text: part.take(np.array([row]))
            for part in parts
            for row, text in enumerate(to_document_ids(part, self._table))
        }

    def _complete(self, ids: Sequence[str]) -> None:
        """Send rows that leave values out, with those of what came to their key, or of documents that there are."""
        wanted = [text for text in dict.fromkeys(ids) if text in self._open]
        if not wanted:
            return
        part = ChangeBatch.concat([self._open.pop(text) for text in wanted])
        unsent = find_unavailable_columns(part)
        documents = self._writer.mover.find_documents(wanted, list(unsent), self._folded, self._keys, self._table)
        moved = map(self._find_moved, wanted)
        stored: list[KnownFields | None] = [
            arrival if arrival is not None and (arrival.whole or document is None) else document
            for arrival, document in zip(moved, documents, strict=True)
        ]
        self._writer.requests.fill(part, pa.array(wanted, pa.string()), unsent, stored, self._table)

    def _find_moved(self, text: str) -> MovedDocument | None:
        """Return what came to the key of a row, if it is that row's."""
        moved, origin = self._moved.pop(text, None), self._keys.before.get(text)
        return moved if moved is not None and origin is not None and moved.old == origin.id else None

    def _select(self, codes: Collection[int]) -> FoldedChanges:
        """Return the winners of some keys that are gone."""
        return self._take(np.isin(self._codes[self._folded.winners], list(codes)))

    def _take(self, which: Mask) -> FoldedChanges:
        folded = self._folded
        return attrs.evolve(folded, winners=folded.winners[which], images=folded.images[which])


@attrs.frozen(eq=False)
class WaitingKeysLookup:
    """Writes the documents of keys that waited (`model.destination.TableLookup`).

    Where they need remembered deletes the batch's own are noted first, and counted with the others.
    """

    plan: BatchPlan
    writers: OpenSearchWriterFactory
    deleted_keys: DeletedKeysTable | None = None

    def applies(self, table: TablePlan, result: JobResult) -> bool:
        """Tell whether there are any."""
        return table.index in result.tables_waiting

    def run(self, outputs: DataFrame, table: TablePlan, result: JobResult, until: ExitStack) -> Iterator[DataFrame]:
        """Write them in one task, which may first ask for deletes."""
        waiting = outputs.where(F.col("kind") == OutputKind.WAITING_KEYS)
        first = self._write(waiting, table, asks=True)
        yield first
        wanted = result.deletes_wanted.get(table.index, 0)
        if wanted and self.deleted_keys is not None:
            remember_deleted_keys(self.deleted_keys, result)
            until.callback(self.deleted_keys.close)
            deletes = find_deletes(first, self.deleted_keys.of(table.layout.name), table, wanted)
            yield self._write(waiting.unionAll(deletes), table, asks=False)

    def _write(self, inputs: DataFrame, table: TablePlan, *, asks: bool) -> DataFrame:
        task = waiting_task(self.plan, table, self.writers, asks=asks)
        return inputs.coalesce(1).mapInArrow(task, task_output.OUTPUT_SCHEMA)
