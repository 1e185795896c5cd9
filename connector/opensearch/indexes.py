"""Indexes of a cluster: looked up, made, and given fields. On the driver; metadata only.

An index remembers in its mapping's `_meta` the columns that it was made for, so that nothing of it is kept elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import orjson
from opensearchpy import OpenSearch
from opensearchpy.exceptions import NotFoundError, RequestError

from connector.errors import FatalError
from connector.opensearch.client import client, mapped
from connector.opensearch.mappings import Field, added
from connector.settings.search import SearchSettings

META = "icebridge"


@attrs.frozen
class Index:
    """An index, or the one that an alias writes to: its fields, and what we noted of it (empty for a foreign one)."""

    name: str
    properties: Mapping[str, Any]
    noted: Mapping[str, Any]


class Indexes:
    """The indexes of one cluster."""

    def __init__(self, settings: SearchSettings) -> None:
        """Prepare; nothing is asked yet."""
        self._client: OpenSearch = client(settings.connection)
        self._settings = {"index.gc_deletes": settings.gc_deletes}

    def find(self, name: str) -> Index | None:
        """Look an index, alias or data stream up; of several indexes behind a name the newest counts.

        Raises:
            RetriableError, FatalError: the cluster is away, or does not let us in.
        """
        with mapped(f"reading the mapping of {name}"):
            try:
                answer = self._client.indices.get_mapping(index=name)
            except NotFoundError:
                return None
        found = sorted(answer.items())
        if not found:
            return None
        document = found[-1][1]["mappings"]
        noted = document.get("_meta", {}).get(META, {})
        return Index(name, document.get("properties", {}), {key: orjson.loads(text) for key, text in noted.items()})

    def create(self, name: str, properties: Mapping[str, Field], noted: Mapping[str, Any]) -> None:
        """Make an index; one that another process made meanwhile is all right.

        Raises:
            RetriableError, FatalError: the cluster is away, or refuses it.
        """
        body = {"settings": self._settings, "mappings": {"_meta": _meta(noted), "properties": dict(properties)}}
        with mapped(f"creating index {name}"):
            try:
                self._client.indices.create(index=name, body=body)
            except RequestError as error:
                if error.error != "resource_already_exists_exception":
                    raise

    def grow(self, index: Index, properties: Mapping[str, Field], noted: Mapping[str, Any]) -> None:
        """Give an index the fields that it lacks, and note its columns.

        Raises:
            FatalError: it has too many fields, or refuses them for another reason.
        """
        body = {"_meta": _meta(noted), "properties": added(index.properties, properties)}
        with mapped(f"adding fields to index {index.name}"):
            try:
                self._client.indices.put_mapping(index=index.name, body=body)
            except RequestError as error:
                if "Limit of total fields" in str(error.info):
                    raise FatalError(
                        f"index {index.name} takes no more fields: raise its index.mapping.total_fields.limit, leave "
                        "columns out (debezium.sink.iceberg.excluded-columns), or set schema.ignore=true"
                    ) from error
                raise

    def swap(self, alias: str, fresh: str) -> list[str]:
        """Let a name stand for a fresh index, in one step that no search falls into; give the indexes it stood for.

        What had the name before is deleted, whether it was an index itself or stood behind the alias.

        Raises:
            RetriableError, FatalError: the cluster is away, or refuses it; the name is as it was.
        """
        with mapped(f"swapping {alias} for {fresh}"):
            self._client.indices.refresh(index=fresh)
            try:
                before = [name for name in self._client.indices.get(index=alias) if name != fresh]
            except NotFoundError:
                before = []
            gone = [{"remove_index": {"index": name}} for name in before]
            added_alias = {"add": {"index": fresh, "alias": alias, "is_write_index": True}}
            self._client.indices.update_aliases(body={"actions": [*gone, added_alias]})
        return before


def _meta(noted: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    # As text: `_meta` is an object whose parts OpenSearch would otherwise merge and reorder as it likes.
    return {META: {key: orjson.dumps(value).decode() for key, value in noted.items()}}
