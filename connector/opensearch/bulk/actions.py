"""Rows with their ids and versions -> lines of bulk requests, a column at a time. Runs on executors.

Versions are of type `external_gte`: the index takes a change unless it holds one with a greater version, whether that
is a document or a delete. Changes of one version are of one transaction at the source; of those the last wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import pyarrow as pa

from connector.opensearch.bulk.bulk_processor import Actions
from connector.opensearch.documents.json_values import escaped, joined, json_texts, object_texts, quoted
from serde.arrays import Ints

ROWS = 5_000
"""Rows that are made into text at once: columns small enough for the processor's caches."""


@attrs.frozen
class Style:
    """How documents of an index are written: whole, only the fields that an event has (`partial`), or only ever added
    (`create`).

    `index` takes new documents. Where one name stands for several indexes, `over` is that name, and `behind` has all
    of them, oldest first: a document may be in any (`bulk.document_sender`).
    """

    index: str
    partial: bool = False
    create: bool = False
    over: str | None = None
    behind: tuple[str, ...] = ()


def indexing(
    style: Style,
    rows: pa.RecordBatch,
    ids: pa.StringArray,
    versions: Ints | None,
    tags: Ints,
) -> Iterator[Actions]:
    """Give the actions that put rows into an index."""
    for start in range(0, len(tags), ROWS):
        part = slice(start, start + ROWS)
        texts = [json_texts(column) for column in rows[part].columns]
        yield written(
            style, rows.schema.names, texts, ids[part], None if versions is None else versions[part], tags[part]
        )


def written(
    style: Style,
    names: Sequence[str],
    texts: Sequence[pa.StringArray],
    ids: pa.StringArray | None,
    versions: Ints | None,
    tags: Ints,
) -> Actions:
    """Give the actions for documents whose fields are JSON texts already; without ids OpenSearch makes them up."""
    document = object_texts(names, texts)
    if style.partial:
        head = _head("update", style.index, ids, None)
        return Actions(joined(head, '{"doc":', document, ',"doc_as_upsert":true}\n'), tags)
    if style.create:
        return Actions(joined(_head("create", style.index, ids, None), document, "\n"), tags, once=True)
    return Actions(joined(_head("index", style.index, ids, versions), document, "\n"), tags)


def deleting(style: Style, ids: pa.StringArray, versions: Ints | None, tags: Ints) -> Actions:
    """Give the actions that take documents out of an index."""
    return Actions(_head("delete", style.index, ids, None if style.partial else versions), tags, len(tags))


def _head(action: str, index: str, ids: pa.StringArray | None, versions: Ints | None) -> pa.StringArray | str:
    if ids is None:
        return f'{{"{action}":{{"_index":{quoted(index)}}}}}\n'
    begin = f'{{"{action}":{{"_index":{quoted(index)},"_id":"'
    if versions is None:
        return joined(begin, escaped(ids), '"}}\n')
    return joined(
        begin,
        escaped(ids),
        '","version":',
        pa.array(versions).cast(pa.string()),
        ',"version_type":"external_gte"}}\n',
    )
