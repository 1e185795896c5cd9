"""OpenSearch index -> documents as typed rows: the tests' own client, sharing no code with the sink."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from attrs import frozen

Row = dict[str, Any]
PAGE = 10_000


@frozen
class Search:
    """A node as the tests use it."""

    url: str

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request; the answer as it is, errors included."""
        data = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
        request = urllib.request.Request(
            f"{self.url}/{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return json.loads(error.read())

    def exists(self, index: str) -> bool:
        """Whether there is an index, or alias, of this name."""
        return "error" not in self.ask("GET", f"{index}/_settings")

    def documents(self, index: str) -> dict[str, Row]:
        """Every document by its id, as it is in the index."""
        self.ask("POST", f"{index}/_refresh")
        found: dict[str, Row] = {}
        after: list[Any] = []
        while True:
            body: Row = {"size": PAGE, "sort": ["_doc"], "query": {"match_all": {}}}
            page = self.ask("POST", f"{index}/_search?scroll=1m", body) if not after else self._next(after[0])
            hits = page["hits"]["hits"]
            if not hits:
                return found
            found.update((hit["_id"], hit["_source"]) for hit in hits)
            after = [page["_scroll_id"]]

    def _next(self, scroll: str) -> Any:
        return self.ask("POST", "_search/scroll", {"scroll": "1m", "scroll_id": scroll})

    def versions(self, index: str) -> dict[str, int]:
        """The version of every document, by its id."""
        self.ask("POST", f"{index}/_refresh")
        page = self.ask("POST", f"{index}/_search", {"size": PAGE, "version": True})
        return {hit["_id"]: hit["_version"] for hit in page["hits"]["hits"]}

    def mapping(self, index: str) -> Row:
        """The fields of an index."""
        return dict(next(iter(self.ask("GET", f"{index}/_mapping").values()))["mappings"]["properties"])

    def rows(self, index: str) -> list[Row]:
        """Every document with the values that its texts stand for, by the columns that the index notes."""
        mapping = next(iter(self.ask("GET", f"{index}/_mapping").values()))["mappings"]
        schema = json.loads(mapping["_meta"]["icebridge"]["schema"])
        kinds = {field["name"]: field["type"] for field in schema["fields"]}
        return [{n: typed(v, kinds.get(n)) for n, v in row.items()} for row in self.documents(index).values()]


def typed(value: Any, kind: Any) -> Any:
    """The value that a document's text stands for, by the type in Iceberg's schema."""
    if value is None or kind is None:
        return value
    if isinstance(kind, dict):
        if kind["type"] == "list":
            return [typed(item, kind["element"]) for item in value]
        if kind["type"] == "struct":
            kinds = {field["name"]: field["type"] for field in kind["fields"]}
            return {name: typed(item, kinds.get(name)) for name, item in value.items()}
        return value
    read = _READ.get(kind.split("(")[0].split("[")[0])
    return read(value) if read else value


_READ: dict[str, Callable[[Any], Any]] = {
    "decimal": Decimal,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamptz": datetime.fromisoformat,
    "timestamp_ns": datetime.fromisoformat,
    "timestamptz_ns": datetime.fromisoformat,
    "binary": base64.b64decode,
    "fixed": base64.b64decode,
    "float": float,
    "double": float,
}
