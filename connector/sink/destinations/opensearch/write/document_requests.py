"""Rows of one task -> bulk requests, and what becomes of their documents. Runs on executors.

A change's version is made of its dedup value (`__source_ts_ns` by default, see `fold.document_versions`); where
events have none, or tell of deletes by tombstones only, it is the record's offset (docs/decisions/0020).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types.nested_columns import read_columns
from connector.opensearch.bulk.actions import WriteOptions
from connector.opensearch.bulk.bulk_processor import DocumentCounts
from connector.opensearch.bulk.document_sender import DocumentSender
from connector.opensearch.documents.document_ids import build_document_ids
from connector.opensearch.documents.document_lookup import StoredDocument
from connector.opensearch.documents.json_values import to_json_texts
from connector.opensearch.indexes.index_meta import VersionSource
from connector.settings.opensearch.connection import BulkSettings, ConnectionSettings
from connector.sink.destinations.opensearch.write.key_changes import KnownFields
from connector.sink.destinations.opensearch.write.timestamps import TimestampRule
from connector.sink.model.change_rows import RECORD_BITS, ChangeBatch
from connector.sink.model.plan import BatchPlan, DeadLetterRef, TablePlan
from serde.arrays import Ints, Mask
from serde.events.positions.log_positions import NO_VALUE


@attrs.frozen
class IndexTarget:
    """How documents of one table are written: where to, what their versions are, and where a time is needed for it."""

    style: WriteOptions
    versions: VersionSource
    dating: TimestampRule | None = None


class DocumentRequests:
    """The bulk requests of one task, to the indexes of any number of tables.

    `dead` has the reasons of refused documents by the number of their record, `stale` the numbers of those that the
    index has newer documents of.
    """

    def __init__(
        self,
        connection: ConnectionSettings,
        bulk: BulkSettings,
        targets: Mapping[str, IndexTarget],
        plan: BatchPlan,
    ) -> None:
        """Send nothing yet; `targets` are by table name."""
        self._targets, self._plan = targets, plan
        self.dead: dict[int, str] = {}
        self.stale: set[int] = set()
        self.refused = 0
        self.documents: dict[int, int] = {}
        self._sender = DocumentSender(connection, bulk, self.refuse, self.stale.add)

    def target(self, table: TablePlan) -> IndexTarget:
        """Return how the documents of a table are written."""
        return self._targets[table.layout.name]

    def is_versioned(self, table: TablePlan) -> bool:
        """Tell whether the versions of documents tell the order of all changes, and not that of one partition alone."""
        return self.target(table).versions == "source"

    def index(self, part: ChangeBatch, table: TablePlan) -> None:
        """Put rows under their keys, under the versions of their changes."""
        ids, versions = find_ids(part, table), self.find_versions(part, table)
        self.index_rows(self.target(table).style, part, ids, versions, table)

    def index_rows(
        self, style: WriteOptions, part: ChangeBatch, ids: pa.StringArray, versions: Ints | None, table: TablePlan
    ) -> None:
        """Put rows under ids, into the index of `style`; without versions nothing is there yet."""
        self._count(table, len(part))
        self._sender.index_rows(style, part.rows, ids, versions, part.order.records)

    def index_texts(
        self,
        style: WriteOptions,
        texts: Mapping[str, pa.StringArray],
        part: ChangeBatch,
        ids: pa.StringArray,
        versions: Ints | None,
        table: TablePlan,
    ) -> None:
        """Put documents of JSON texts, by column, in place of the rows of a part."""
        self._count(table, len(part))
        self._sender.put(style, texts, ids, versions, part.order.records)

    def move_texts(
        self, texts: Mapping[str, pa.StringArray], place: ChangeBatch, version: int, table: TablePlan
    ) -> None:
        """Put a document under the key of `place`; it counts as none of the batch's."""
        ids, versions = find_ids(place, table), np.array([version])
        self._sender.put(self.target(table).style, texts, ids, versions, place.order.records, counted=False)

    def delete(self, part: ChangeBatch, table: TablePlan) -> None:
        """Take the documents of keys out."""
        self._count(table, len(part))
        ids, versions = find_ids(part, table), self.find_versions(part, table)
        self._sender.delete(self.target(table).style, ids, versions, part.order.records)

    def fill(
        self,
        part: ChangeBatch,
        ids: pa.StringArray,
        unsent: Mapping[str, Mask],
        stored: Sequence[KnownFields | None],
        table: TablePlan,
    ) -> None:
        """Send rows whose unsent values, by column, are those of documents."""
        texts = to_texts(part)
        for name, mask in unsent.items():
            known = np.array([document is not None and name in document.fields for document in stored])
            rows = np.flatnonzero(mask & known).tolist()
            values = [orjson.dumps(document.fields[name]) for row in rows if (document := stored[row]) is not None]
            chosen = np.zeros(len(part), np.bool_)
            chosen[rows] = True
            texts[name] = pc.replace_with_mask(texts[name], chosen, pa.array(values, pa.binary()).cast(pa.string()))
        self.index_texts(self.target(table).style, texts, part, ids, self.find_versions(part, table), table)

    def find(self, table: TablePlan, ids: Sequence[str], fields: Sequence[str]) -> list[StoredDocument | None]:
        """Return what there is of each id: its version, and the values of these columns."""
        return self._sender.fetch_stored(self.target(table).style, ids, fields)

    def find_by_id(
        self, table: TablePlan, ids: Sequence[str], fields: Sequence[str]
    ) -> dict[str, StoredDocument | None]:
        """Return the same by id."""
        return dict(zip(ids, self.find(table, ids, fields), strict=True))

    def find_versions(self, part: ChangeBatch, table: TablePlan) -> Ints:
        """Return the version of each change; one without a dedup value has that of the document that it changes."""
        if self.target(table).versions == "offset":
            return part.order.offset
        versions = part.order.dedup.copy()
        unknown_at = np.flatnonzero(part.order.dedup == NO_VALUE)
        if len(unknown_at):
            stored = self.find(table, find_ids(part, table).take(pa.array(unknown_at)).to_pylist(), ())
            versions[unknown_at] = [0 if document is None else document.version for document in stored]
        return versions

    def refuse(self, record: int, reason: str) -> None:
        """Note a document that is not taken, by the number of its record; of several that a record has, the first."""
        if record in self.dead:
            return
        self.refused += 1
        if len(self.dead) <= self._plan.max_letters:
            self.dead[record] = reason

    def build_letters(self) -> tuple[DeadLetterRef, ...]:
        """Return dead letters of what was refused."""
        places, low = {rank: at for at, rank in self._plan.ranks.items()}, (1 << RECORD_BITS) - 1
        letters = ((*places[record >> RECORD_BITS], record & low, reason) for record, reason in self.dead.items())
        return tuple(
            DeadLetterRef(topic, partition, at, "TASK_PUT", reason) for topic, partition, at, reason in letters
        )

    def settle(self) -> None:
        """Wait until everything that was sent is settled."""
        self._sender.settle()

    def finish(self) -> DocumentCounts:
        """Wait until every document is settled, and let go of the threads."""
        return self._sender.finish()

    def _count(self, table: TablePlan, documents: int) -> None:
        self.documents[table.index] = self.documents.get(table.index, 0) + documents


def find_ids(part: ChangeBatch, table: TablePlan) -> pa.StringArray:
    """Return the ids of the documents that changes are about."""
    return build_document_ids(read_columns(part.rows, table.layout.keys))


def to_texts(part: ChangeBatch) -> dict[str, pa.StringArray]:
    """Return the columns of rows as JSON texts."""
    return {name: to_json_texts(part.rows.column(name)) for name in part.rows.schema.names}
