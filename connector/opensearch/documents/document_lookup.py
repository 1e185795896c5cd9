"""Ids -> what an index holds of them, as it is now (`_mget` needs no refresh), and which of several indexes. On
executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from connector.opensearch.client import client, mapped
from connector.settings.opensearch.sink import ConnectionSettings

AT_ONCE = 1_000
MOST_HITS = 10_000
"""OpenSearch's limit of a page (`index.max_result_window`): ten indexes may hold each id."""

_HITS = "hits.hits._id,hits.hits._index"


@attrs.frozen(eq=False)
class Held:
    """A document: its version, and the fields that were asked for."""

    version: int
    fields: dict[str, Any]


def held(
    connection: ConnectionSettings, index: str | Sequence[str], ids: Sequence[str], fields: Sequence[str]
) -> Iterator[Held | None]:
    """Give the document of each id, None where there is none; `index` is one for all, or one for each.

    Raises:
        RetriableError, FatalError: the cluster is away, or does not let us in.
    """
    shown: dict[str, Any] = {"_source_includes": list(fields)} if fields else {"_source": False}
    for start in range(0, len(ids), AT_ONCE):
        wanted = list(ids[start : start + AT_ONCE])
        with mapped(f"looking documents of {index if isinstance(index, str) else 'several indexes'} up"):
            if isinstance(index, str):
                answer = client(connection).mget(body={"ids": wanted}, index=index, **shown)
            else:
                places = zip(index[start : start + AT_ONCE], wanted, strict=True)
                docs = [{"_index": place, "_id": one} for place, one in places]
                answer = client(connection).mget(body={"docs": docs}, **shown)
        for one in answer["docs"]:
            yield Held(one["_version"], one.get("_source", {})) if one.get("found") else None


def homes(connection: ConnectionSettings, name: str, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Give the indexes behind a name that hold a document of each id, as searches see them; ids of none are left out.

    Raises:
        RetriableError, FatalError: the cluster is away, or a shard of it.
    """
    found: dict[str, tuple[str, ...]] = {}
    for start in range(0, len(ids), AT_ONCE):
        wanted = list(dict.fromkeys(ids[start : start + AT_ONCE]))
        body = {"size": MOST_HITS, "_source": False, "query": {"ids": {"values": wanted}}}
        with mapped(f"looking for documents behind {name}"):
            answer = client(connection).search(
                index=name, body=body, params={"allow_partial_search_results": "false", "filter_path": _HITS}
            )
        for hit in answer.get("hits", {}).get("hits", ()):
            found[hit["_id"]] = (*found.get(hit["_id"], ()), hit["_index"])
    return found


def refresh(connection: ConnectionSettings, name: str) -> None:
    """Let searches see everything that the indexes behind a name hold. Raises as `homes`."""
    with mapped(f"refreshing {name}"):
        client(connection).indices.refresh(index=name)
