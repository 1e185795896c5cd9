"""Rows with their ids and versions -> lines of bulk requests, a column at a time. Runs on executors.

Versions are of type `external_gte`: the index takes a change unless it holds one with a greater version, whether that
is a document or a delete. Changes of one version are of one transaction at the source; of those the last wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from connector.opensearch.bulk.bulk_processor import BulkActions
from connector.opensearch.documents.json_values import (
    build_objects,
    concat_texts,
    escape_json,
    quote_json,
    to_json_texts,
)
from serde.arrays import Ints

ROWS_PER_STEP = 5_000
"""Rows that are made into text at once: columns small enough for the processor's caches."""


@attrs.frozen
class WriteOptions:
    """How documents of an index are written: whole, only the fields that an event has (`partial`), or only ever added
    (`create`).

    `index` takes new documents. Where one name stands for several indexes, `over` is that name, and `behind` has all
    of them, oldest first: a document may be in any (`bulk.document_sender`). `fields` gives the fields of columns that
    are kept under another name than their own (`indexes.field_names`).
    """

    index: str
    partial: bool = False
    create: bool = False
    over: str | None = None
    behind: tuple[str, ...] = ()
    fields: Mapping[str, str] = attrs.field(factory=dict)

    def name_fields(self, columns: Iterable[str]) -> list[str]:
        """Return the fields of columns."""
        return [self.fields.get(name, name) for name in columns]

    def name_columns(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a document's values under the names of their columns."""
        columns = {field: name for name, field in self.fields.items()}
        return {columns.get(field, field): value for field, value in document.items()}


def index_rows(
    style: WriteOptions,
    rows: pa.RecordBatch,
    ids: pa.StringArray,
    versions: Ints | None,
    tags: Ints,
) -> Iterator[BulkActions]:
    """Return the actions that put rows into an index."""
    for start in range(0, len(tags), ROWS_PER_STEP):
        part = slice(start, start + ROWS_PER_STEP)
        texts = [to_json_texts(column) for column in rows[part].columns]
        yield index_documents(
            style, rows.schema.names, texts, ids[part], None if versions is None else versions[part], tags[part]
        )


def index_documents(
    style: WriteOptions,
    names: Sequence[str],
    texts: Sequence[pa.StringArray],
    ids: pa.StringArray | None,
    versions: Ints | None,
    tags: Ints,
) -> BulkActions:
    """Return the actions for documents whose values are JSON texts already; without ids OpenSearch makes them up.

    `names` are those of columns: fields have the names that `style` gives them.
    """
    document = build_objects(style.name_fields(names), texts)
    if style.partial:
        head = _action_line("update", style.index, ids, None)
        return BulkActions(concat_texts(head, '{"doc":', document, ',"doc_as_upsert":true}\n'), tags)
    if style.create:
        return BulkActions(
            concat_texts(_action_line("create", style.index, ids, None), document, "\n"), tags, once=True
        )
    return BulkActions(concat_texts(_action_line("index", style.index, ids, versions), document, "\n"), tags)


def delete_documents(style: WriteOptions, ids: pa.StringArray, versions: Ints | None, tags: Ints) -> BulkActions:
    """Return the actions that take documents out of an index."""
    return BulkActions(_action_line("delete", style.index, ids, None if style.partial else versions), tags, len(tags))


def _action_line(action: str, index: str, ids: pa.StringArray | None, versions: Ints | None) -> pa.StringArray | str:
    if ids is None:
        return f'{{"{action}":{{"_index":{quote_json(index)}}}}}\n'
    begin = f'{{"{action}":{{"_index":{quote_json(index)},"_id":"'
    if versions is None:
        return concat_texts(begin, escape_json(ids), '"}}\n')
    return concat_texts(
        begin,
        escape_json(ids),
        '","version":',
        pa.array(versions).cast(pa.string()),
        ',"version_type":"external_gte"}}\n',
    )
