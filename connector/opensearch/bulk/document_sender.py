"""Documents and deletes by id -> the index that each belongs to, by bulk requests. Runs on executors.

Usually that is the one index of their name. Behind an alias that was rolled over there are several, and versions only
hold within one; so there (docs/decisions/0022):

1. A change of a document goes to the index that holds it, whichever takes new ones by now.
2. A delete goes to all of them: each remembers its version.
3. A document that none of them holds asks the oldest first, by a delete of its own version: one that was deleted
   since by a newer change is not brought back. Then it goes to the index that takes new ones.
4. Where two of them hold it (two processes, and a rollover between them), the next change leaves one.
5. What is only ever added (data streams) is left out where one of them holds it: it came before.

The oldest is enough in rule 3: it was there when any of the others got a delete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.opensearch.bulk.actions import WriteOptions, delete_documents, index_documents, index_rows
from connector.opensearch.bulk.bulk_processor import BulkActions, BulkProcessor, DocumentCounts, OnRejected, OnStale
from connector.opensearch.documents.document_lookup import (
    StoredDocument,
    fetch_documents,
    find_indexes,
    refresh_indexes,
)
from connector.settings.opensearch.connection import BulkSettings, ConnectionSettings
from serde.arrays import Ints

_IGNORED_TAG = -1
"""Tag of deletes whose answer decides nothing."""


class DocumentSender:
    """Sends documents and deletes of one task; `finish` waits for all of them. All raise as `Bulk.send`."""

    def __init__(
        self,
        connection: ConnectionSettings,
        settings: BulkSettings,
        refuse: OnRejected,
        stale: OnStale = lambda _: None,
    ) -> None:
        """Prepare; nothing is sent yet."""
        self._connection, self._settings, self._on_stale = connection, settings, stale
        self._bulk = BulkProcessor(connection, settings, refuse, stale)
        self._beside: BulkProcessor | None = None
        self._newer: list[int] = []
        self._refreshed: set[str] = set()

    def index_rows(
        self, style: WriteOptions, rows: pa.RecordBatch, ids: pa.StringArray, versions: Ints | None, tags: Ints
    ) -> None:
        """Put rows into their index, as documents of these ids."""
        for place, at in self._places(style, ids, versions, tags):
            picked = rows if at is None else rows.take(pa.array(at))
            for actions in index_rows(place, picked, *_take_rows(at, ids, versions, tags)):
                self._bulk.send(actions)

    def put(
        self,
        style: WriteOptions,
        texts: Mapping[str, pa.StringArray],
        ids: pa.StringArray | None,
        versions: Ints | None,
        tags: Ints,
        *,
        counted: bool = True,
    ) -> None:
        """Put documents into their index whose fields are JSON texts already; without ids OpenSearch makes them up.

        What is not `counted` is sent for what comes behind it: nobody is told what became of it.
        """
        if ids is None:
            self._bulk.send(index_documents(style, list(texts), list(texts.values()), None, None, tags))
            return
        tags = tags if counted else np.full(len(tags), _IGNORED_TAG)
        for place, at in self._places(style, ids, versions, tags):
            picked = [text if at is None else text.take(pa.array(at)) for text in texts.values()]
            bulk = self._bulk if counted else self._uncounted_bulk
            bulk.send(index_documents(place, list(texts), picked, *_take_rows(at, ids, versions, tags)))

    def delete(self, style: WriteOptions, ids: pa.StringArray, versions: Ints | None, tags: Ints) -> None:
        """Take documents out, wherever they are."""
        if style.over is None:
            self._bulk.send(delete_documents(style, ids, versions, tags))
            return
        holders = self._find_holders(style, ids)
        self.delete_from_indexes(
            style, [holders.get(row, (style.index,))[-1] for row in range(len(ids))], ids, versions, tags
        )

    def delete_from_indexes(
        self, style: WriteOptions, places: Sequence[str], ids: pa.StringArray, versions: Ints | None, tags: Ints
    ) -> None:
        """Take documents out of the indexes that hold them, and let the others behind the name know (rule 2)."""
        at = np.array(places, object)
        for index in dict.fromkeys((*style.behind, *places)):
            own, others = np.flatnonzero(at == index), np.flatnonzero(at != index)
            if len(own):
                self._bulk.send(_delete_actions(style, index, own, ids, versions, tags))
            if len(others) and versions is not None and not style.partial:
                self._uncounted_bulk.send(
                    _delete_actions(style, index, others, ids, versions, np.full(len(tags), _IGNORED_TAG))
                )

    def fetch_stored(
        self, style: WriteOptions, ids: Sequence[str], columns: Sequence[str]
    ) -> list[StoredDocument | None]:
        """Return what there is of each id: its version, and the values of these columns, by their names."""
        places: str | list[str] = style.index
        if style.over is not None:
            holders = self._find_holders(style, pa.array(ids, pa.string()))
            places = [holders.get(row, (style.index,))[-1] for row in range(len(ids))]
        documents = list(fetch_documents(self._connection, places, ids, style.name_fields(columns)))
        if not style.fields:
            return documents
        return [one and attrs.evolve(one, fields=style.name_columns(one.fields)) for one in documents]

    def settle(self) -> None:
        """Wait until everything that was sent is settled."""
        self._bulk.settle()
        if self._beside is not None:
            self._beside.settle()

    def finish(self) -> DocumentCounts:
        """Settle, and let go of the threads; give the counts of all."""
        try:
            counts = self._bulk.finish()
        finally:
            if self._beside is not None:
                self._beside.finish()
        return counts

    @property
    def _uncounted_bulk(self) -> BulkProcessor:
        """What nobody counts: deletes that are sent to be remembered, or to ask."""
        if self._beside is None:
            self._beside = BulkProcessor(self._connection, self._settings, lambda *_: None, self._newer.append)
        return self._beside

    def _places(
        self, style: WriteOptions, ids: pa.StringArray, versions: Ints | None, tags: Ints
    ) -> Iterator[tuple[WriteOptions, Ints | None]]:
        """Return the index of each document, by rows; None for all rows."""
        if style.over is None:
            yield style, None
            return
        holders = self._find_holders(style, ids)
        new = np.ones(len(ids), np.bool_)
        new[list(holders)] = False
        if style.create:
            self._bulk.counts.indexed += len(holders)
            yield style, np.flatnonzero(new)
            return
        if versions is not None and not style.partial:
            self._delete_duplicates(style, holders, ids, versions)
            gone = self._find_deleted(style, np.flatnonzero(new), ids, versions)
            self._bulk.counts.stale += len(gone)
            for row in gone.tolist():
                self._on_stale(int(tags[row]))
            new[gone] = False
        by_index: dict[str, list[int]] = {}
        for row, own in holders.items():
            by_index.setdefault(own[-1], []).append(row)
        for index, rows in by_index.items():
            yield attrs.evolve(style, index=index), np.array(rows)
        if new.any():
            yield style, np.flatnonzero(new)

    def _find_holders(self, style: WriteOptions, ids: pa.StringArray) -> dict[int, tuple[str, ...]]:
        """Return the indexes that hold each document, oldest first, by row; rows of new documents are left out.

        What tasks put into the older ones was searchable before, and what they put into others goes there again; so
        one refresh is enough for a task.
        """
        assert style.over is not None
        if style.over not in self._refreshed:
            refresh_indexes(self._connection, style.over)
            self._refreshed.add(style.over)
        known = find_indexes(self._connection, style.over, ids.to_pylist())
        if not known:
            return {}
        age = {index: place for place, index in enumerate(style.behind)}
        rows = np.flatnonzero(pc.is_in(ids, pa.array(list(known), pa.string())))
        own = zip(rows.tolist(), ids.take(pa.array(rows)).to_pylist(), strict=True)
        return {row: tuple(sorted(known[text], key=lambda i: (age.get(i, len(age)), i))) for row, text in own}

    def _delete_duplicates(
        self, style: WriteOptions, holders: Mapping[int, tuple[str, ...]], ids: pa.StringArray, versions: Ints
    ) -> None:
        twice: dict[str, list[int]] = {}
        for row, own in holders.items():
            for index in own[:-1]:
                twice.setdefault(index, []).append(row)
        for index, rows in twice.items():
            unasked = np.full(len(ids), _IGNORED_TAG)
            self._uncounted_bulk.send(_delete_actions(style, index, np.array(rows), ids, versions, unasked))

    def _find_deleted(self, style: WriteOptions, rows: Ints, ids: pa.StringArray, versions: Ints) -> Ints:
        """Return the rows that were deleted by newer changes, as the oldest index remembers (rule 3)."""
        oldest = style.behind[0]
        if oldest == style.index or not len(rows):
            return rows[:0]
        self._newer.clear()
        self._uncounted_bulk.send(_delete_actions(style, oldest, rows, ids, versions, np.arange(len(ids))))
        self._uncounted_bulk.settle()
        return np.array(sorted(row for row in self._newer if row != _IGNORED_TAG), np.int64)


def _delete_actions(
    style: WriteOptions, index: str, rows: Ints, ids: pa.StringArray, versions: Ints | None, tags: Ints
) -> BulkActions:
    return delete_documents(attrs.evolve(style, index=index), *_take_rows(rows, ids, versions, tags))


def _take_rows(
    rows: Ints | None, ids: pa.StringArray, versions: Ints | None, tags: Ints
) -> tuple[pa.StringArray, Ints | None, Ints]:
    if rows is None:
        return ids, versions, tags
    return ids.take(pa.array(rows)), None if versions is None else versions[rows], tags[rows]
