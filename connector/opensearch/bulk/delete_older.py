"""An index -> the same without the documents that are older than a version. Runs on executors, a slice each.

Deletes by query know nothing of external versions: they would leave a later change of a key no chance. So ids are read
page by page, and deleted as any other change is, by version.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing, suppress
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from opensearchpy import OpenSearch
from opensearchpy.exceptions import NotFoundError, OpenSearchException

from connector.errors import RetriableError
from connector.opensearch.bulk.actions import WriteOptions
from connector.opensearch.bulk.document_sender import DocumentSender
from connector.opensearch.client import map_opensearch_errors, opensearch_client
from connector.settings.opensearch.connection import BulkSettings, ConnectionSettings

PAGE_DOCUMENTS = 5_000
_SCROLL_KEEPALIVE = "2m"


@attrs.frozen
class OlderDocuments:
    """Documents whose version is not above `most`.

    A delete of one has the version `version`, or its document's where that is greater: later changes have no less.
    With `own` only those whose columns have these texts: they are read, as a field may be indexed in any way.
    """

    version: int
    most: int
    own: Mapping[str, str] = attrs.field(factory=dict)


def delete_older(
    connection: ConnectionSettings,
    settings: BulkSettings,
    style: WriteOptions,
    older: OlderDocuments,
    place: int,
    slices: int,
) -> int:
    """Delete such documents of one slice of an index; return how many there were.

    Raises:
        RetriableError, FatalError: the cluster is away, or refuses it.
    """
    sender, name = DocumentSender(connection, settings, lambda *_: None), style.over or style.index
    asking = opensearch_client(connection)
    own = {style.fields.get(column, column): text for column, text in older.own.items()}
    body: dict[str, object] = {
        "size": PAGE_DOCUMENTS,
        "_source": sorted(own) or False,
        "sort": ["_doc"],
        "version": True,
    }
    if slices > 1:
        body["slice"] = {"id": place, "max": slices}
    with map_opensearch_errors(f"emptying index {name}"):
        asking.indices.refresh(index=name)
        with closing(_read_pages(asking, name, body)) as pages:
            for page in pages:
                hits = [hit for hit in page["hits"]["hits"] if not own or hit.get("_source", {}).items() >= own.items()]
                old = [hit for hit in hits if hit["_version"] <= older.most]
                ids = pa.array([hit["_id"] for hit in old], pa.string())
                versions = np.array([max(hit["_version"], older.version) for hit in old], np.int64)
                if old:
                    places = [hit["_index"] for hit in old]
                    sender.delete_from_indexes(style, places, ids, versions, np.arange(len(ids)))
    return sender.finish().deleted


def _read_pages(asking: OpenSearch, name: str, body: Mapping[str, object]) -> Generator[dict[str, Any], None, None]:
    """Return the pages of a search that have documents.

    The search is closed whatever becomes of it: a node keeps some hundreds of them (`search.max_open_scroll_context`),
    each for minutes, and a batch that is tried again opens as many once more.
    """
    page = asking.search(index=name, body=body, scroll=_SCROLL_KEEPALIVE)
    opened = page["_scroll_id"]
    try:
        while _check_page(page, name)["hits"]["hits"]:
            yield page
            page = _scroll_on(asking, page, name)
            opened = page["_scroll_id"]
    finally:
        with suppress(OpenSearchException):  # what it was closed for is told
            asking.clear_scroll(body={"scroll_id": [opened]}, ignore=[404])


def _scroll_on(asking: OpenSearch, page: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the next page. Raises RetriableError: the cluster knows nothing of the search any more."""
    try:
        told: dict[str, Any] = asking.scroll(body={"scroll_id": page["_scroll_id"], "scroll": _SCROLL_KEEPALIVE})
    except NotFoundError as error:
        raise RetriableError(
            f"emptying index {name}: the cluster forgot the search, as a node started again, or a page took longer "
            f"than {_SCROLL_KEEPALIVE}"
        ) from error
    return told


def _check_page(page: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a page that all shards gave. Raises RetriableError: one did not, and its documents would stay."""
    shards = page.get("_shards", {})
    # Those that are nowhere allocated count as neither: `failed` has only those that answered so.
    if page.get("timed_out") or shards.get("successful") != shards.get("total"):
        raise RetriableError(f"emptying index {name}: not all of its shards answer the search for its documents")
    return page
