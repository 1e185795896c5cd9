"""What every publisher of changes keeps to, Kafka's, OpenSearch's and one in memory; without servers.

What a publisher does with rows is tested with servers: `kafka/test_source_publish.py`,
`spark/test_search_direct_documents.py`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connector.errors import FatalError
from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.settings import SourceSettings
from connector.settings.source.settings import load_source
from connector.source.changes.row_key import KeyKind, RowKey
from connector.source.destination import CapturedTable, ChangePublisher
from connector.source.destinations.registry import PUBLISHERS
from connector.source.destinations.schema_subjects import subject_name
from connector.source.envelope.row_schema import describe_row
from connector.source.snapshots.snapshot_info import SnapshotInfo
from tests.runs.publishers import InMemoryPublisher, unconnected

PORT = [name for name, _ in inspect.getmembers(ChangePublisher, inspect.isfunction) if not name.startswith("_")]
SEARCH = "debezium.sink.type=opensearch\nconnection.url=http://h:1\n"


@pytest.fixture(params=["memory", *PUBLISHERS])
def publisher(request: pytest.FixtureRequest, settings_of: Callable[[str], SourceSettings]) -> ChangePublisher:
    if request.param == "memory":
        return InMemoryPublisher()
    return unconnected(settings_of(SEARCH if request.param == "opensearch" else ""))


@pytest.fixture
def settings_of(tmp_path: Path) -> Callable[[str], SourceSettings]:
    """settings_of(more properties)."""

    def read(extra: str) -> SourceSettings:
        file = tmp_path / "s.properties"
        text = "connector.class=IcebergSource\nbootstrap.servers=h:1\ntopic.prefix=p\niceberg.catalog.warehouse=/w\n"
        file.write_text(text + extra)
        return load_source([file], environ={})

    return read


def captured(*types: str) -> CapturedTable:
    """A table with a column of each type."""
    fields = [{"id": i, "name": f"c{i}", "type": kind, "required": False} for i, kind in enumerate(types, 1)]
    schema = SnapshotSchema(json.dumps({"type": "struct", "schema-id": 3, "fields": fields}))
    key = RowKey(KeyKind.CONFIGURED, ("c1",))
    return CapturedTable("db.t", SnapshotInfo(7, None, 1, 10), schema, key, describe_row(schema.document))


def test_every_sink_type_has_a_publisher(settings_of: Callable[[str], SourceSettings]) -> None:
    """What `debezium.sink.type` says names a publisher of the registry; all are named."""
    assert [settings_of(extra).sink_type for extra in ("", SEARCH)] == list(PUBLISHERS)


@pytest.mark.parametrize("method", PORT)
def test_methods_are_those_of_the_port(publisher: ChangePublisher, method: str) -> None:
    """Every publisher has the port's methods, with its parameters."""
    ours, wanted = (inspect.signature(getattr(owner, method)) for owner in (type(publisher), ChangePublisher))
    assert ours == wanted


def test_a_table_has_one_target_and_another_has_another(publisher: ChangePublisher) -> None:
    """The target of a table is always the same, no other table's, and says what it is."""
    one, again, other = (publisher.target(name) for name in ("db.a", "db.a", "db.b"))
    assert one == again != other
    assert one.kind in ("topic", "index")
    assert one.name


def test_plain_columns_can_be_published(publisher: ChangePublisher) -> None:
    """Columns of everyday types are taken, without asking a server."""
    publisher.check_columns(captured("long", "string", "decimal(9, 2)", "timestamptz", "boolean"))


@pytest.mark.parametrize("name", PUBLISHERS)
def test_columns_without_a_type_are_refused_before_anything_is_published(
    settings_of: Callable[[str], SourceSettings], name: str
) -> None:
    """A column that has no type at the destination is named, with the table."""
    publisher = unconnected(settings_of(SEARCH if name == "opensearch" else ""))
    with pytest.raises(FatalError, match=r"table db\.t: no Debezium type for c2 \(geometry\)"):
        publisher.check_columns(captured("long", "geometry"))


def test_a_table_that_is_read_from_its_beginning_needs_no_target(publisher: ChangePublisher) -> None:
    """With nothing published before, there is nothing that could be gone."""
    publisher.check_target(captured("long"), "")


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("TopicNameStrategy", "p.db.t-value"),
        ("RecordNameStrategy", "p.db.t.Envelope"),
        ("TopicRecordNameStrategy", "p.db.t-p.db.t.Envelope"),
    ],
)
def test_subjects_are_confluents(strategy: Any, expected: str) -> None:
    """Subjects are named as Confluent's strategies of these names do."""
    assert subject_name(strategy, "value", "p.db.t", "p.db.t.Envelope") == expected
