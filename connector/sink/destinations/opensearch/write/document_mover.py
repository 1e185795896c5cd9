"""Documents of rows whose keys change -> under their new keys, with what the index has of them. Runs on executors."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import orjson

from connector.opensearch.documents.document_lookup import StoredDocument
from connector.sink.destinations.opensearch.write.document_requests import DocumentRequests, find_ids, to_texts
from connector.sink.destinations.opensearch.write.key_changes import (
    KeyChanges,
    KnownFields,
    fill_texts,
    find_last_deletes,
    read_codes,
    set_key,
)
from connector.sink.destinations.opensearch.write.moved_documents import DocumentMove, MovedDocument, find_moves
from connector.sink.fold.values.unavailable_values import mark_unavailable
from connector.sink.model.change_rows import FoldedChanges, gather
from connector.sink.model.plan import TablePlan
from serde.events.changes import DELETED_COLUMN
from serde.events.positions.log_positions import NO_VALUE


@attrs.frozen(eq=False)
class DocumentMover:
    """Finds and moves the documents of one task."""

    requests: DocumentRequests

    def find_moves(self, folded: FoldedChanges, keys: KeyChanges, table: TablePlan) -> Iterator[DocumentMove]:
        """Return the documents that move."""
        return find_moves(folded, keys, table, versioned=self.requests.is_versioned(table))

    def find_unmoved(self, folded: FoldedChanges, keys: KeyChanges, table: TablePlan) -> set[int]:
        """Return the codes of keys whose rows leave values out, and whose documents are not under them yet."""
        missing = folded.winners[mark_unavailable(folded)]
        if not keys.before or not len(missing):
            return set()
        codes = read_codes(folded, table.layout.keys)[missing]
        ids = [text for part in gather(folded.parts, missing) for text in find_ids(part, table).to_pylist()]
        at = [place for place, text in enumerate(ids) if text in keys.before]
        stored = self.requests.find_by_id(table, [ids[place] for place in at], _marks(table))
        versioned = self.requests.is_versioned(table)
        return {
            int(codes[place])
            for place in at
            if not keys.before[ids[place]].has_moved(stored[ids[place]], versioned=versioned)
        }

    def find_documents(
        self, ids: list[str], names: list[str], folded: FoldedChanges, keys: KeyChanges, table: TablePlan
    ) -> list[StoredDocument | None]:
        """Return the documents of rows that waited: by now they are where they belong."""
        versioned, origins = self.requests.is_versioned(table), [keys.before.get(text) for text in ids]
        fields = [*names, *_marks(table)]
        own = self.requests.find_by_id(table, ids, fields)
        before = self.requests.find_by_id(table, [one.id for one in origins if one is not None], fields)
        since = find_last_deletes(folded, ids, table) if versioned else {}
        return [
            own[text]
            if origin is None
            else origin.choose(own[text], before[origin.id], since.get(text, NO_VALUE), versioned=versioned)
            for text, origin in zip(ids, origins, strict=True)
        ]

    def move_document(
        self,
        move: DocumentMove,
        number: int,
        moved: MovedDocument | None,
        document: StoredDocument | None,
        table: TablePlan,
    ) -> MovedDocument | None:
        """Put a document under its new key, below the create that says so, and return it.

        Args:
            move: the change of key.
            number: the version goes below this.
            moved: what came to its old key in the batch.
            document: what is there under the old key.
            table: the table's plan.
        """
        versioned, names = self.requests.is_versioned(table), table.layout.columns.names
        stored: KnownFields | None = document if move.is_of_life(document, versioned=versioned) else None
        whole = stored is not None or not move.needs_document
        if (
            moved is not None
            and moved.old == move.came_from
            and move.document_counts
            and (moved.whole or stored is None)
        ):
            stored, whole = moved, moved.whole or whole
        if stored is None and (move.row is None or (move.suspect and move.document_counts)):
            return None
        texts = {} if move.row is None else to_texts(move.row)
        if stored is not None:
            fill_texts(texts, names if move.row is None else move.lacking, stored)
        set_key(texts, move.place, table)
        # What lacks something must not go over what an earlier try of the batch put there whole.
        version = max(number - 1 - (not whole), 0) if versioned else 0
        self.requests.move_texts(texts, move.place, version, table)
        missing = () if stored is not None and whole else move.lacking
        fields = {name: text[0].as_py() for name, text in texts.items() if name not in missing}
        return MovedDocument(move.old, {name: orjson.loads(text) for name, text in fields.items()}, whole)


def _marks(table: TablePlan) -> list[str]:
    """Return the column that tells a document whose row is gone."""
    return [name for name in table.layout.columns.names if name == DELETED_COLUMN]
