"""Bulk requests, look-ups and metadata of indexes -> an OpenSearch cluster in memory, behind its Python client's calls.

Versions are those of `external_gte`: an index takes what is not older than the document, or the delete, that it knows;
of deletes it knows for a while only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
import orjson
from opensearchpy.exceptions import ConnectionError as NoConnection
from opensearchpy.exceptions import ConnectionTimeout, NotFoundError, RequestError, TransportError

from connector.settings.opensearch.connection import ConnectionSettings
from tests.simulation.interruptions import Interruptions, JavaError
from tests.simulation.replacements import replaced

CLUSTERS: dict[str, tuple[SearchCluster, Interruptions]] = {}
"""What tasks send to, by the address that travels with them."""

_CLIENTS = (
    "bulk.bulk_processor",
    "bulk.delete_older",
    "documents.document_lookup",
    "indexes.index_admin",
)


@attrs.define(eq=False)
class Index:
    """An index: documents and deletes that it knows, each with its version."""

    uuid: str
    mappings: dict[str, Any]
    documents: dict[str, tuple[int, dict[str, Any]]] = attrs.field(factory=dict)
    gone: dict[str, int] = attrs.field(factory=dict)

    def version(self, one: str) -> int:
        return self.documents[one][0] if one in self.documents else self.gone.get(one, -1)

    def take(self, action: str, told: Mapping[str, Any], document: dict[str, Any] | None) -> tuple[int, str | None]:
        """Do one action of a bulk request: its status, and the type of its error."""
        one, known = told["_id"], self.version(told["_id"])
        version = told.get("version", known + 1)
        if version < known:
            return 409, "version_conflict_engine_exception"
        if action == "index":
            assert document is not None
            self.documents[one] = version, document
            return 200, None
        self.gone[one] = version
        return (200 if self.documents.pop(one, None) is not None else 404), None


@attrs.define(eq=False)
class SearchCluster:
    """All indexes by name.

    `busy`: so many of the next items of bulk requests its nodes have no time for. `starting`: so many requests come
    before it has read its state.
    """

    indexes: dict[str, Index] = attrs.field(factory=dict)
    made: int = 0
    busy: int = 0
    starting: int = 0

    def create(self, name: str, mappings: dict[str, Any]) -> None:
        if name in self.indexes:
            raise RequestError(400, "resource_already_exists_exception", {})
        self.made += 1
        self.indexes[name] = Index(f"uuid-{self.made}", orjson.loads(orjson.dumps(mappings)))

    def find(self, name: str) -> Index:
        if name not in self.indexes:
            raise NotFoundError(404, "index_not_found_exception", {})
        return self.indexes[name]

    def describe(self, name: str) -> dict[str, Any]:
        index = self.find(name)
        settings = {"index": {"uuid": index.uuid, "creation_date": index.uuid.partition("-")[2]}}
        return {"aliases": {}, "mappings": orjson.loads(orjson.dumps(index.mappings)), "settings": settings}

    def check_started(self, *, names_index: bool) -> None:
        """Refuse a request of a cluster that has just started.

        What only looks an index up, or changes it, by its own name passes over the block, and finds none.
        """
        if self.starting:
            self.starting -= 1
            if names_index:
                raise NotFoundError(404, "index_not_found_exception", {})
            raise TransportError(503, "cluster_block_exception", {})

    def forget_deletes(self) -> None:
        """As nodes do when they start again, and some time after each delete."""
        for index in self.indexes.values():
            index.gone.clear()

    def bulk(self, body: bytes) -> dict[str, Any]:
        lines = [orjson.loads(line) for line in body.splitlines()]
        items, at = [], 0
        while at < len(lines):
            ((action, told),) = lines[at].items()
            document = lines[at + 1] if action != "delete" else None
            at += 1 if document is None else 2
            status, wrong = self._take(action, told, document)
            error = {} if wrong is None else {"error": {"type": wrong, "reason": ""}}
            items.append({action: {"_id": told["_id"], "status": status, **error}})
        return {"errors": any("error" in next(iter(item.values())) for item in items), "items": items}

    def _take(self, action: str, told: Mapping[str, Any], document: dict[str, Any] | None) -> tuple[int, str | None]:
        if self.busy:
            self.busy -= 1
            return 429, "rejected_execution_exception"
        return self.find(told["_index"]).take(action, told, document)

    def hits(self, name: str) -> list[dict[str, Any]]:
        documents = self.find(name).documents
        return [
            {"_index": name, "_id": one, "_version": version, "_source": dict(source)}
            for one, (version, source) in documents.items()
        ]


@attrs.frozen(eq=False)
class SearchClient:
    """As OpenSearch's client, as far as it is called; it is its own `transport` and `indices`."""

    cluster: SearchCluster
    calls: Interruptions

    @property
    def transport(self) -> SearchClient:
        return self

    @property
    def indices(self) -> SearchClient:
        return self

    def perform_request(self, method: str, path: str, *, params: Any, body: bytes) -> Any:
        return self._call(f"{method} {path}", lambda: self.cluster.bulk(body), changes=True)

    def get(self, index: str, params: Any = None) -> Any:
        return self._call(f"GET {index}", lambda: {index: self.cluster.describe(index)}, names_index=True)

    def get_settings(self, index: str, name: str, params: Any) -> Any:
        there = [one for one in index.split(",") if one in self.cluster.indexes]
        return self._call("GET _settings", lambda: {one: self.cluster.describe(one) for one in there})

    def create(self, index: str, body: Any) -> None:
        self._call(f"PUT {index}", lambda: self.cluster.create(index, body["mappings"]), changes=True)

    def put_mapping(self, index: str, body: Any) -> None:
        def put() -> None:
            found = self.cluster.find(index).mappings
            found["_meta"] = body["_meta"]
            found["properties"] = {**found.get("properties", {}), **body["properties"]}

        self._call(f"PUT {index}/_mapping", put, changes=True, names_index=True)

    def refresh(self, index: str) -> None:
        self._call(f"POST {index}/_refresh", lambda: None, names_index=True)

    def search(self, index: str, body: Any, scroll: str) -> Any:
        place = body.get("slice", {"id": 0, "max": 1})
        hits = self._call(f"POST {index}/_search", lambda: self.cluster.hits(index))
        own = [hit for hit in hits if hash(hit["_id"]) % place["max"] == place["id"]]
        return {"_scroll_id": "s", "hits": {"hits": own}}

    def scroll(self, body: Any) -> Any:
        return {"_scroll_id": "s", "hits": {"hits": []}}

    def clear_scroll(self, body: Any, ignore: Any) -> None:
        pass

    def mget(self, body: Any, index: str, **shown: Any) -> Any:
        def look_up() -> list[dict[str, Any]]:
            return self.cluster.hits(index) if index in self.cluster.indexes else []

        found = {hit["_id"]: {**hit, "found": True} for hit in self._call("mget", look_up)}
        return {"docs": [found.get(one, {"_id": one, "found": False}) for one in body["ids"]]}

    def _call(self, what: str, do: Callable[[], Any], *, changes: bool = False, names_index: bool = False) -> Any:
        def answer() -> Any:
            self.cluster.check_started(names_index=names_index)
            return do()

        try:
            return self.calls.call(what, answer, _away, _unanswered if changes else None)
        except JavaError as error:
            # What came twice, and was refused the second time: no such thing here, but no answer comes either.
            raise _unanswered() from error


def _away() -> Exception:
    return NoConnection("N/A", "nobody there", Exception())


def _unanswered() -> Exception:
    return ConnectionTimeout("TIMEOUT", "no answer", Exception())


def _client(connection: ConnectionSettings) -> SearchClient:
    return SearchClient(*CLUSTERS[connection.urls[0]])


@contextmanager
def search_in_memory() -> Iterator[None]:
    """Have clients of a cluster ask one in memory."""
    with replaced((f"connector.opensearch.{place}", "opensearch_client", _client) for place in _CLIENTS):
        yield
