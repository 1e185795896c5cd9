"""Commands that only look -> what the catalog says; in processes of their own by a JVM without a Spark context."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.commit.commit_summary import CONNECTOR_NAME, SCHEMA_DRIFT_COUNT
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.stored_commit import StoredCommit
from connector.iceberg.state.offset_rows import SOURCE, OffsetRows
from connector.iceberg.state.offsets_table import OffsetsTable
from connector.maintenance.file_counts import FileCounts
from connector.maintenance.lease import LeaseTable
from connector.maintenance.table_state import FILE_FIGURES
from connector.settings import load
from connector.settings.source.settings import load_source
from connector.source.snapshots.next_step import SnapshotOffset
from connector.source.snapshots.table_offset import TableOffset
from tests.clients.lake import Lake
from tests.harness.tiers import tiered
from tests.runs.host import Host
from tests.runs.processes import Workspace, workspace

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NOBODY = "127.0.0.1:9"
NO_SPARK = {"spark.extraListeners": "no.such.Listener"}
"""With this no Spark context comes up."""
WHERE = pytest.mark.parametrize("is_process", tiered([True, False], [False]))
"""In a process of its own, or in that of the tests, where there is a Spark session."""


@pytest.fixture
def space(quick: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A warehouse without a broker; what commands print has long lines."""
    monkeypatch.setenv("COLUMNS", "300")
    return workspace(tmp_path, "seen", NOBODY, {**quick, "topics": "t"})


def test_a_sinks_status_needs_no_spark(spark: SparkSession, space: Workspace) -> None:
    """Newest commits, drift, tables without a commit of the sink, and why there is no lag; none that is gone."""
    lake = Lake(spark, space.name, space.catalog)
    catalog = Catalog(spark, load([space.file({})]).catalog)
    spark.sql(f"CREATE NAMESPACE {space.name}.`default`")
    for name in ("ours", "others"):
        spark.sql(f"CREATE TABLE {space.name}.`default`.{name} (id BIGINT) USING iceberg")
    mine = lake.java("ours").newAppend().set(CONNECTOR_NAME, "seen").set(SCHEMA_DRIFT_COUNT, "3")
    mine.commit()
    committed = int(lake.java("ours").currentSnapshot().snapshotId())
    lake.java("ours").newAppend().commit()
    position = KafkaOffsets(offsets={("t", 0): 5})
    tables = {f"default.{name}": StoredCommit(position) for name in ("ours", "others", "gone")}
    OffsetsTable(catalog, "_debezium_offset_storage", "seen").save(position, tables)
    leases = LeaseTable.open(catalog, "_debezium_offset_storage", "one")
    with leases.hold("default.ours") as run:
        assert run is not None
        run.counts = FileCounts(small_files=4, orphan_bytes=70)
    told = _status(space, OFFSETS_TABLE)
    assert told["tables"].keys() == {"default.ours", "default.others"}
    ours, others = told["tables"]["default.ours"], told["tables"]["default.others"]
    assert (ours["snapshot_id"], ours["iceberg_schema_drift_count"], ours["lag"]) == (committed, 3, None)
    assert (others["snapshot_id"], others["committed_at"]) == (None, None)
    assert told["unanswered"].startswith("Kafka gave no answer")
    files = {name: ours[name] for name in FILE_FIGURES}
    assert files == {
        "data_files": 0,
        "small_files": 4,
        "equality_delete_files": 0,
        "position_delete_files": 0,
        "deletion_vectors": 0,
        "snapshots": 2,
        "metadata_files": 3,
        "orphan_bytes": 70,
    }
    assert (others["snapshots"], others["metadata_files"], others["small_files"]) == (0, 1, None)


OFFSETS_TABLE = {"debezium.source.offset.storage.iceberg.table-name": "_debezium_offset_storage"}


@WHERE
def test_a_sink_that_writes_to_a_branch(spark: SparkSession, host: Host, space: Workspace, is_process: bool) -> None:
    """Snapshot and offsets are those of its branch, and whoever only looks changes nothing."""
    lake = Lake(spark, space.name, space.catalog)
    spark.sql(f"CREATE NAMESPACE {space.name}.`default`")
    spark.sql(f"CREATE TABLE {space.name}.`default`.audited (id BIGINT) USING iceberg")
    lake.java("audited").newAppend().commit()
    lake.java("audited").manageSnapshots().createBranch("audit").commit()
    position = KafkaOffsets("c", {"t": "id"}, {("t", 0): 17})
    commit = lake.java("audited").newAppend().toBranch("audit")
    for key, value in position.summary("seen", "one").items():
        commit = commit.set(key, value)
    commit.commit()
    committed = int(lake.java("audited").snapshot("audit").snapshotId())
    before = lake.java("audited").operations().current().metadataFileLocation()
    extra = {**OFFSETS_TABLE, "iceberg.table.audited.commit-branch": "audit"}
    catalog = Catalog(spark, load([space.file({})]).catalog)
    tables = {"default.audited": StoredCommit(KafkaOffsets(offsets={("t", 0): 5}))}
    OffsetsTable(catalog, "_debezium_offset_storage", "seen").save(KafkaOffsets(offsets={("t", 0): 17}), tables)
    told = _status(space, extra, None if is_process else host)["tables"]["default.audited"]
    assert told["snapshot_id"] == committed
    shown = _say(space, extra, "offsets show", host=None if is_process else host)
    assert "default.audited: 17" in shown
    assert "Kafka gave no answer" in shown
    assert lake.java("audited").operations().current().metadataFileLocation() == before


@WHERE
def test_a_sources_status_needs_no_spark(spark: SparkSession, host: Host, space: Workspace, is_process: bool) -> None:
    """How far it is in each table that the catalog has, and what lies before it; nor do offsets that are set."""
    extra = {"connector.class": "IcebergSource", "topic.prefix": "p", "table.include.list": "db\\.[a-z].*"}
    sinks = {"topics", "debezium.sink.type", "iceberg.maintenance.enabled"}
    given = {key: value for key, value in space.properties.items() if key not in sinks}
    space = Workspace(space.home, space.name, given)
    lake = Lake(spark, space.name, space.catalog)
    spark.sql(f"CREATE NAMESPACE {space.name}.db")
    spark.sql(f"CREATE TABLE {space.name}.db.t (id BIGINT) USING iceberg")
    table = lake.java("t", "db")
    table.newAppend().commit()
    first = int(table.currentSnapshot().snapshotId())
    table.newAppend().commit()
    settings = load_source([space.file(extra)])
    rows = OffsetRows(Catalog(spark, settings.catalog), settings.capture.offsets_table, "seen", SOURCE)
    rows.put(None, {"db.t": TableOffset(SnapshotOffset(str(table.uuid()), first)).json()})
    told = _status(space, extra, None if is_process else host)
    newest = int(lake.java("t", "db").currentSnapshot().snapshotId())
    assert told["tables"] == {
        "db.t": {"published_snapshot": first, "newest_snapshot": newest, "snapshots_behind": 1, "full_read": None}
    }
    shown = _say(space, extra, "offsets show", host=None if is_process else host)
    assert all(str(snapshot) in shown for snapshot in (first, newest))
    _say(space, extra, "offsets reset", "--to", "latest", "--execute", host=None if is_process else host)
    rows.reload()
    assert TableOffset.parse(rows.by_table["db.t"]).position.snapshot_id == newest


def _status(
    space: Workspace, extra: dict[str, str], host: Host | None = None
) -> dict[str, dict[str, dict[str, object]]]:
    """Return the document that the command prints."""
    text = _say(space, extra, "status", "--output", "json", host=host)
    found: dict[str, dict[str, dict[str, object]]] = json.loads(text[text.index("{\n") :])
    return found


def _say(space: Workspace, extra: dict[str, str], command: str, *arguments: str, host: Host | None = None) -> str:
    """Return what a command prints in a host, else in a process of its own, where no Spark can start."""
    if host is not None:
        said = host.call(*command.split(), *arguments, str(space.file(extra)))
        assert said.code == 0, said.log[-4000:]
        return said.out
    done = space.start({**extra, **NO_SPARK}, *arguments, command=command).wait(120)
    assert done.code == 0, done.text[-4000:]
    return done.text
