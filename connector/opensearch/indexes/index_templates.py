"""Mappings -> index templates, for indexes that OpenSearch makes as documents come: those of a day, of a data stream.

A template tells what they look like. On the driver; metadata only.

Both have the calls of `IndexAdmin`. Templates are named after the sink's index, and a longer name goes before a shorter
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
from connector.opensearch.client import map_opensearch_errors
from connector.opensearch.indexes.index_admin import META_KEY, IndexAdmin, IndexInfo, encode_meta
from connector.opensearch.indexes.index_names import IndexNamePattern
from connector.opensearch.indexes.mapping import FieldMapping, missing_properties
from connector.settings.opensearch.documents import OpenSearchSettings

TIMESTAMP_FIELD = "@timestamp"
_BASE_PRIORITY = 200
_PROPERTIES_FILTER = "*.mappings.properties"


class DataStreamAdmin(IndexAdmin):
    """Data streams: documents are only added. A template of the user's that fits the name is used; else one is made."""

    def find(self, name: str) -> IndexInfo | None:
        """Look a data stream up. Raises as `Indexes.find`; FatalError: the name is something else."""
        index = super().find(name)
        if index is not None and not index.stream:
            raise FatalError(f"{name} is no data stream; name another by data.stream.prefix, or do without streams")
        return index

    def create(self, name: str, properties: Mapping[str, FieldMapping], noted: Mapping[str, Any]) -> IndexInfo:
        """Make a data stream, and give it. Raises as `Indexes.create`."""
        index = IndexInfo(name, {}, {}, stream=True)
        with map_opensearch_errors(f"creating data stream {name}"):
            try:
                self._client.indices.create_data_stream(name=name)
            except RequestError as error:
                if "no matching index template" in str(error.info):
                    self._template(name, _with_timestamp_field(properties), noted)
                    self._client.indices.create_data_stream(name=name)
                elif error.error != "resource_already_exists_exception":
                    raise
        stream = self.find(name) or index
        self.grow(stream, properties, noted)
        return stream

    def grow(self, index: IndexInfo, properties: Mapping[str, FieldMapping], noted: Mapping[str, Any]) -> None:
        """Add fields that they lack to all indexes behind a stream, and those to come; raises as `IndexAdmin.grow`."""
        with map_opensearch_errors(f"adding fields to the template of {index.name}"):
            known = find_template(self._client, index.name)
            if known is not None:
                self._template(index.name, merge_properties(known.properties, _with_timestamp_field(properties)), noted)
        super().grow(index, _with_timestamp_field(properties), noted)

    def _template(self, name: str, properties: Mapping[str, FieldMapping], noted: Mapping[str, Any]) -> None:
        body = {"index_patterns": [name], "data_stream": {}, **_template_body(name, properties, noted, {})}
        self._client.indices.put_index_template(name=_template_name(name), body=body)


class DatedIndexAdmin(IndexAdmin):
    """Indexes with a date in their names, a group for each name: the template of the group has our notes."""

    def __init__(self, settings: OpenSearchSettings, pattern: IndexNamePattern) -> None:
        """Prepare; `pattern` makes names of a group."""
        super().__init__(settings)
        self._pattern = pattern

    def find(self, name: str) -> IndexInfo | None:
        """Look a group up. Raises as `Indexes.find`."""
        with map_opensearch_errors(f"looking the template of {name} up"):
            return find_template(self._client, name)

    def current(self, index: IndexInfo) -> IndexInfo:
        """Return the group: indexes come and go with time."""
        return index

    def create(self, name: str, properties: Mapping[str, FieldMapping], noted: Mapping[str, Any]) -> IndexInfo:
        """Make the template of a group, and give the group. Raises as `Indexes.create`."""
        index = IndexInfo(name, {}, {})
        self.grow(index, properties, noted)
        return index

    def grow(self, index: IndexInfo, properties: Mapping[str, FieldMapping], noted: Mapping[str, Any]) -> None:
        """Add fields that they lack to the open indexes of a group, and those to come; raises as `IndexAdmin.grow`."""
        group = self._pattern.wildcard(index.name)
        body = _template_body(index.name, merge_properties(index.properties, properties), noted, self._settings)
        with map_opensearch_errors(f"looking for the indexes {group}"):
            there = self._client.indices.get_alias(index=group, params={"expand_wildcards": "open"})
            told = self._client.indices.get_mapping(index=group, params={"filter_path": _PROPERTIES_FILTER})
        for one in filter(self._pattern.regexp(index.name).fullmatch, there):
            # Others may have made it, with types of their own.
            own = told.get(one, {}).get("mappings", {}).get("properties", {})
            if missing_properties(own, properties):
                super().grow(attrs.evolve(index, name=one, properties=own), properties, noted)
        # Last, as it has our notes: what was broken off is done again.
        with map_opensearch_errors(f"telling the template of {group}"):
            self._client.indices.put_index_template(
                name=_template_name(index.name), body={"index_patterns": [group], **body}
            )


def find_template(client: Any, name: str) -> IndexInfo | None:
    """Return what our template of a name says; None where there is none."""
    try:
        answer = client.indices.get_index_template(name=_template_name(name))
    except NotFoundError:
        return None
    mappings = answer["index_templates"][0]["index_template"]["template"].get("mappings", {})
    noted = {key: orjson.loads(text) for key, text in mappings.get("_meta", {}).get(META_KEY, {}).items()}
    return IndexInfo(name, mappings.get("properties", {}), noted)


def merge_properties(known: Mapping[str, Any], wanted: Mapping[str, FieldMapping]) -> dict[str, Any]:
    """Return the fields of both; one that is known stays as it is, but for fields below it."""
    result = dict(known)
    for name, field in missing_properties(known, wanted).items():
        there = known.get(name, {})
        inner = merge_properties(there["properties"], field["properties"]) if "properties" in there else None
        result[name] = field if inner is None else {**there, "properties": inner}
    return result


def _with_timestamp_field(properties: Mapping[str, FieldMapping]) -> dict[str, FieldMapping]:
    """A stream's documents have a time, whatever column has its name. Without a mapping it still is one."""
    return {**properties, TIMESTAMP_FIELD: {"type": "date"}}


def _template_body(
    name: str, properties: Mapping[str, FieldMapping], noted: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    template = {"settings": dict(settings), "mappings": {"_meta": encode_meta(noted), "properties": dict(properties)}}
    return {"priority": _BASE_PRIORITY + len(name), "template": template}


def _template_name(name: str) -> str:
    return "icebridge-" + re.sub(r"[^\w.-]", "_", name)
