"""Ids -> what an index holds of them, as it is now (`_mget` needs no refresh), and which of several indexes. On
executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote_plus

import attrs

from connector.opensearch.client import map_opensearch_errors, opensearch_client, to_lookup_error
from connector.opensearch.cluster_blocks import NO_INDEX
from connector.settings.opensearch.connection import ConnectionSettings

IDS_PER_REQUEST = 1_000
MAX_HITS = 10_000
"""OpenSearch's limit of a page (`index.max_result_window`): ten indexes may hold each id."""

_MAX_FIELDS_BYTES = 3_000
"""Names of fields in one request: its line may have 4 KiB (`http.max_initial_line_length`)."""

_HITS_FILTER = "hits.hits._id,hits.hits._index"


@attrs.frozen(eq=False)
class StoredDocument:
    """A document: its version, and at least the fields that were asked for."""

    version: int
    fields: dict[str, Any]


def fetch_documents(
    connection: ConnectionSettings, index: str | Sequence[str], ids: Sequence[str], fields: Sequence[str]
) -> Iterator[StoredDocument | None]:
    """Return the document of each id, None where there is none; `index` is one for all, or one for each.

    Raises:
        RetriableError: the cluster is away, or a shard of it: whether it holds a document is not known then.
        FatalError: it does not let us in.
    """
    shown = _choose_shown(fields)
    for start in range(0, len(ids), IDS_PER_REQUEST):
        wanted = list(ids[start : start + IDS_PER_REQUEST])
        doing = f"looking documents of {index if isinstance(index, str) else 'several indexes'} up"
        with map_opensearch_errors(doing):
            if isinstance(index, str):
                answer = opensearch_client(connection).mget(body={"ids": wanted}, index=index, **shown)
            else:
                places = zip(index[start : start + IDS_PER_REQUEST], wanted, strict=True)
                docs = [{"_index": place, "_id": one} for place, one in places]
                answer = opensearch_client(connection).mget(body={"docs": docs}, **shown)
        for one in answer["docs"]:
            # That an index is gone is told by what is sent there next, or after the batch.
            if one.get("error", {}).get("type", NO_INDEX) != NO_INDEX:
                raise to_lookup_error(doing, one["error"])
            yield StoredDocument(one["_version"], one.get("_source", {})) if one.get("found") else None


def _choose_shown(fields: Sequence[str]) -> dict[str, Any]:
    """Return what a look-up shows of documents: all of them where fields cannot be named in a request's line.

    Names stand side by side there, with commas between.
    """
    if not fields:
        return {"_source": False}
    long = len(quote_plus(",".join(fields))) > _MAX_FIELDS_BYTES
    return {} if long or any("," in name for name in fields) else {"_source_includes": list(fields)}


def find_indexes(connection: ConnectionSettings, name: str, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the indexes behind a name that hold a document of each id, as searches see them; ids of none are left out.

    Raises:
        RetriableError, FatalError: the cluster is away, or a shard of it.
    """
    indexes_by_id: dict[str, tuple[str, ...]] = {}
    for start in range(0, len(ids), IDS_PER_REQUEST):
        wanted = list(dict.fromkeys(ids[start : start + IDS_PER_REQUEST]))
        body = {"size": MAX_HITS, "_source": False, "query": {"ids": {"values": wanted}}}
        with map_opensearch_errors(f"looking for documents behind {name}"):
            answer = opensearch_client(connection).search(
                index=name, body=body, params={"allow_partial_search_results": "false", "filter_path": _HITS_FILTER}
            )
        for hit in answer.get("hits", {}).get("hits", ()):
            indexes_by_id[hit["_id"]] = (*indexes_by_id.get(hit["_id"], ()), hit["_index"])
    return indexes_by_id


def refresh_indexes(connection: ConnectionSettings, name: str) -> None:
    """Let searches see everything that the indexes behind a name hold. Raises as `find_indexes`."""
    with map_opensearch_errors(f"refreshing {name}"):
        opensearch_client(connection).indices.refresh(index=name)
