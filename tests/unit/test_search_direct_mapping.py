"""The schema of a snapshot -> the mapping of its table's index, without a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.opensearch.indexes.index_admin import IndexAdmin, IndexInfo
from connector.settings import SourceSettings
from connector.settings.opensearch.documents import OpenSearchSettings
from connector.source.destination import CapturedTable
from connector.source.destinations.opensearch import OpenSearchPublisher

pytestmark = pytest.mark.unit
VARIANT = {"type": "object", "enabled": False}


class _Cluster:
    """Indexes by name, with the fields that were asked for."""

    def __init__(self) -> None:
        self.indexes: dict[str, IndexInfo] = {}

    def find(self, name: str) -> IndexInfo | None:
        return self.indexes.get(name)

    def create(self, name: str, properties: Mapping[str, Any], noted: Mapping[str, Any]) -> IndexInfo:
        self.indexes[name] = IndexInfo(name, dict(properties), noted)
        return self.indexes[name]

    def grow(self, index: IndexInfo, properties: Mapping[str, Any], noted: Mapping[str, Any]) -> None:
        self.create(index.name, {**index.properties, **properties}, noted)


def _schema(*columns: tuple[int, str, str]) -> SnapshotSchema:
    fields = [{"id": number, "name": name, "required": False, "type": kind} for number, name, kind in columns]
    return SnapshotSchema(orjson.dumps({"type": "struct", "schema-id": 0, "fields": fields}).decode())


def test_a_schema_is_the_mapping_of_an_index() -> None:
    """The index of a table is made for its schema, before any document."""
    cluster, search = _Cluster(), SimpleNamespace(metadata=(), schema_ignore=False)
    settings = SimpleNamespace(outgoing=SimpleNamespace(topic=lambda table: table))
    publisher = OpenSearchPublisher(
        cast("SourceSettings", settings), cast("OpenSearchSettings", search), cast("IndexAdmin", cluster)
    )
    table = cast("CapturedTable", SimpleNamespace(name="db.T", schema=_schema((1, "id", "long"))))
    publisher.schema_changed(table, created=True)
    assert cluster.indexes["db.t"].properties == {"id": {"type": "long"}}


def test_a_variant_is_kept_whatever_it_holds() -> None:
    """A field of text refuses objects, and one of objects texts; under another name it has no alias, as objects."""
    cluster, search = _Cluster(), SimpleNamespace(metadata=(), schema_ignore=False)
    indexes, settings = cast("IndexAdmin", cluster), cast("SourceSettings", None)
    publisher = OpenSearchPublisher(settings, cast("OpenSearchSettings", search), indexes)
    publisher._prepare_index("t", _schema((1, "id", "long"), (2, "v", "variant")), "t")
    publisher._prepare_index("t", _schema((1, "key", "long"), (2, "w", "variant")), "t")
    alias = {"type": "alias", "path": "id"}
    assert cluster.indexes["t"].properties == {"id": {"type": "long"}, "v": VARIANT, "key": alias}
