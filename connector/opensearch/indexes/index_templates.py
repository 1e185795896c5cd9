"""Indexes that OpenSearch makes as documents come (those of a day, those behind a data stream): an index template tells
what they look like. On the driver; metadata only.

Both have the calls of `Indexes`. Templates are named after the sink's index, and a longer name goes before a shorter
one: `orders-items-*` is not made as `orders-*` says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import attrs
import orjson
from opensearchpy.exceptions import NotFoundError, RequestError

from connector.errors import FatalError
from connector.opensearch.client import mapped
from connector.opensearch.indexes.index_admin import META, Index, Indexes, meta
from connector.opensearch.indexes.index_name_dates import Pattern
from connector.opensearch.indexes.mapping import Field, added
from connector.settings.opensearch.sink import SearchSettings

TIMESTAMP = "@timestamp"
_PRIORITY = 200


class Streams(Indexes):
    """Data streams: documents are only added. A template of the user's that fits the name is used; else one is made."""

    def find(self, name: str) -> Index | None:
        """Look a data stream up. Raises as `Indexes.find`; FatalError: the name is something else."""
        index = super().find(name)
        if index is not None and not index.stream:
            raise FatalError(f"{name} is no data stream; name another by data.stream.prefix, or do without streams")
        return index

    def create(self, name: str, properties: Mapping[str, Field], noted: Mapping[str, Any]) -> Index:
        """Make a data stream, and give it. Raises as `Indexes.create`."""
        index = Index(name, {}, {}, stream=True)
        with mapped(f"creating data stream {name}"):
            try:
                self._client.indices.create_data_stream(name=name)
            except RequestError as error:
                if "no matching index template" in str(error.info):
                    self._template(name, _dated(properties), noted)
                    self._client.indices.create_data_stream(name=name)
                elif error.error != "resource_already_exists_exception":
                    raise
        found = self.find(name) or index
        self.grow(found, properties, noted)
        return found

    def grow(self, index: Index, properties: Mapping[str, Field], noted: Mapping[str, Any]) -> None:
        """Give all indexes behind a stream, and those to come, the fields that they lack. Raises as `Indexes.grow`."""
        with mapped(f"adding fields to the template of {index.name}"):
            known = template(self._client, index.name)
            if known is not None:
                self._template(index.name, united(known.properties, _dated(properties)), noted)
        super().grow(index, _dated(properties), noted)

    def _template(self, name: str, properties: Mapping[str, Field], noted: Mapping[str, Any]) -> None:
        body = {"index_patterns": [name], "data_stream": {}, **_body(name, properties, noted, {})}
        self._client.indices.put_index_template(name=_named(name), body=body)


class Dated(Indexes):
    """Indexes with a date in their names, a group for each name: the template of the group has our notes."""

    def __init__(self, settings: SearchSettings, pattern: Pattern) -> None:
        """Prepare; `pattern` makes names of a group."""
        super().__init__(settings)
        self._pattern = pattern

    def find(self, name: str) -> Index | None:
        """Look a group up. Raises as `Indexes.find`."""
        with mapped(f"looking the template of {name} up"):
            return template(self._client, name)

    def current(self, index: Index) -> Index:
        """Give the group: indexes come and go with time."""
        return index

    def create(self, name: str, properties: Mapping[str, Field], noted: Mapping[str, Any]) -> Index:
        """Make the template of a group, and give the group. Raises as `Indexes.create`."""
        index = Index(name, {}, {})
        self.grow(index, properties, noted)
        return index

    def grow(self, index: Index, properties: Mapping[str, Field], noted: Mapping[str, Any]) -> None:
        """Give the indexes of a group, and those to come, the fields that they lack. Raises as `Indexes.grow`."""
        group = self._pattern.any_of(index.name)
        body = _body(index.name, united(index.properties, properties), noted, self._settings)
        with mapped(f"looking for the indexes {group}"):
            there = self._client.indices.get_alias(index=group)
        for one in filter(self._pattern.regexp(index.name).fullmatch, there):
            super().grow(attrs.evolve(index, name=one), properties, noted)
        # Last, as it has our notes: what was broken off is done again.
        with mapped(f"telling the template of {group}"):
            self._client.indices.put_index_template(name=_named(index.name), body={"index_patterns": [group], **body})


def template(client: Any, name: str) -> Index | None:
    """Give what our template of a name says; None where there is none."""
    try:
        answer = client.indices.get_index_template(name=_named(name))
    except NotFoundError:
        return None
    mappings = answer["index_templates"][0]["index_template"]["template"].get("mappings", {})
    noted = {key: orjson.loads(text) for key, text in mappings.get("_meta", {}).get(META, {}).items()}
    return Index(name, mappings.get("properties", {}), noted)


def united(known: Mapping[str, Any], wanted: Mapping[str, Field]) -> dict[str, Any]:
    """Give the fields of both; one that is known stays as it is, but for fields below it."""
    result = dict(known)
    for name, field in added(known, wanted).items():
        there = known.get(name, {})
        inner = united(there["properties"], field["properties"]) if "properties" in there else None
        result[name] = field if inner is None else {**there, "properties": inner}
    return result


def _dated(properties: Mapping[str, Field]) -> dict[str, Field]:
    """A stream's documents have a time, whatever column has its name. Without a mapping it still is one."""
    return {**properties, TIMESTAMP: {"type": "date"}}


def _body(
    name: str, properties: Mapping[str, Field], noted: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    made = {"settings": dict(settings), "mappings": {"_meta": meta(noted), "properties": dict(properties)}}
    return {"priority": _PRIORITY + len(name), "template": made}


def _named(name: str) -> str:
    return "icebridge-" + re.sub(r"[^\w.-]", "_", name)
