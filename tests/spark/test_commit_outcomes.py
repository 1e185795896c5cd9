"""What a catalog does with a commit, and what it says of it -> tables that are right and whole, commit by commit.

Truncates, tidying, expiry, new tables, changes of schemas, repairs, offsets that are set; batches are in
`tests/kafka/test_sink_commit_outcomes.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyspark.sql import SparkSession

from connector.errors import CommitRefused
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.retention_properties import CREATED_TABLE_PROPERTIES, EXPIRE_SNAPSHOTS_PROPERTY
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit import PendingCommit, commit_files
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.last_commit import LastCommit
from connector.iceberg.commit.snapshot_expiry import expire_snapshots
from connector.iceberg.commit.stored_commit import StoredCommit
from connector.iceberg.commit.truncate import truncate_table
from connector.iceberg.repair.manifest_repair import find_misleading_bounds, remove_misleading_bounds
from connector.iceberg.state.deleted_keys_schema import DELETED_KEYS_COLUMNS
from connector.iceberg.state.deleted_keys_table import DeletedKeysTable
from connector.iceberg.state.offset_rows import SOURCE, OffsetRows
from connector.iceberg.state.offsets_table import OffsetsTable
from connector.iceberg.write.table_writer import TableWriter
from connector.runtime.retry import call_with_retries
from connector.settings.iceberg.catalog import CatalogSettings
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm
from connector.settings.kafka.error_handling import ErrorSettings
from connector.source.snapshots.next_step import SnapshotOffset
from connector.source.snapshots.offset_store import TableOffsetStore
from connector.source.snapshots.table_offset import TableOffset
from tests.clients.lake import Lake
from tests.harness.tiers import tiered
from tests.histories.written_tables import Case, fill
from tests.model.key_types import key_type
from tests.servers.rest_catalog import Fate, RestCatalog, see_whole

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ERRORS = ErrorSettings("all", "", -1, 0.0, 0, 30_000, 200)
FATES = pytest.mark.parametrize("fate", tiered(Fate, [Fate.REFUSED_BUT_LANDED], lambda fate: fate.name.lower()))


@attrs.frozen
class CommitOutcomes:
    """A catalog whose answers are chosen: as the connector sees it, and as it is."""

    spark: SparkSession
    rest: RestCatalog
    catalog: Catalog
    truth: Lake

    def ids(self, table: str, branch: str = "main") -> list[int]:
        """The ids of a table's rows."""
        rows = self.spark.sql(f"SELECT id FROM told_behind.`default`.`{table}` VERSION AS OF '{branch}'").collect()
        return sorted(row[0] for row in rows)


@pytest.fixture(scope="module")
def outcomes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommitOutcomes]:
    """A REST catalog in front of a real one."""
    with RestCatalog(spark, tmp_path_factory.mktemp("told"), "told_behind").serving() as rest:
        assert Lake(spark, "told", rest.properties)
        settings = CatalogSettings("told", rest.properties, ("default",), {})
        spark.sql("CREATE NAMESPACE told.`default`")
        yield CommitOutcomes(spark, rest, Catalog(spark, settings, ERRORS), Lake(spark, "told_behind", rest.behind))


WAYS: dict[str, Any] = {
    "files": (("ts", 4), (), [5, 6, 7, 8, 9, 10, 11]),
    "rows": (("ts", 4), (), [5, 6, 7, 8, 9, 10, 11]),
    "rows of one source": (("ts", 8), (("own", "a'`"),), [1, 3, 5, 7, 9, 10, 11]),
    "rows, merge on read": (("ts", 4), (), [5, 6, 7, 8, 9, 10, 11]),
    "rows of a branch": (("ts", 4), (), [5, 6, 7, 8, 9, 10, 11]),
}


@FATES
@pytest.mark.parametrize("way", tiered(WAYS, ("rows", "files")))
def test_a_truncate_meets_a_fate(outcomes: CommitOutcomes, fate: Fate, way: str) -> None:
    """Whether files or rows go: what was truncated is gone, the rest is there, and every file of the table."""
    until, own, left = WAYS[way]
    name, branch = f"t_{list(WAYS).index(way)}_{fate.name.lower()}", "audit" if way.endswith("branch") else "main"
    mode = "merge-on-read" if "merge" in way else "copy-on-write"
    outcomes.spark.sql(
        f"CREATE TABLE told.`default`.`{name}` (id BIGINT, ts BIGINT, own STRING) TBLPROPERTIES "
        f"('format-version'='2', 'write.delete.mode'='{mode}', 'commit.retry.num-retries'='0')"
    )
    for low, high in ((0, 5), (5, 10)) if way == "files" else ((0, 10),):
        outcomes.spark.sql(
            f"INSERT INTO told.`default`.`{name}` SELECT /*+ COALESCE(1) */ id, id, "
            f"if(id % 2 = 0, \"a'`\", 'b') FROM range({low}, {high})"
        )
    table = outcomes.catalog.load(name)
    assert table is not None
    if branch != "main":
        table.java.manageSnapshots().createBranch(branch, table.snapshot_id).commit()
        table.refresh()
        table.follow(branch)
    outcomes.rest.fates, outcomes.rest.met[:] = {("snapshot", name): fate}, []
    call_with_retries(lambda: truncate_table(outcomes.spark, table, until, own, name="a sink"), ERRORS)
    outcomes.spark.sql(
        f"INSERT INTO told.`default`.`{name}{'' if branch == 'main' else '`.`branch_audit'}` "
        "VALUES (10, 10, 'b'), (11, 11, 'c')"
    )
    outcomes.rest.end()
    assert ("snapshot", name, fate) in outcomes.rest.met
    assert outcomes.ids(name, branch) == left
    see_whole(outcomes.truth, name)


@pytest.mark.thorough
@FATES
def test_tidying_the_deleted_keys_meets_a_fate(
    outcomes: CommitOutcomes, fate: Fate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forgetting, merging, expiring: no key is lost but old ones, no file is missing, and the next keys come in."""
    monkeypatch.setattr("connector.iceberg.state.deleted_keys_table.MAX_SNAPSHOTS", 1)
    monkeypatch.setattr("connector.iceberg.state.system_tables.RETAINED_SNAPSHOTS", 4)
    name = f"_keys_{fate.name.lower()}"
    deleted = DeletedKeysTable(outcomes.spark, outcomes.catalog, name, "a sink", timedelta(days=1))
    for key in range(8):
        _remember(deleted, key, old=key == 0)
    for kind in ("snapshot", "replace", "expire"):
        outcomes.rest.fates[kind, name] = fate
    call_with_retries(deleted.clean_up, ERRORS)
    _remember(deleted, 9)
    deleted.clean_up()
    outcomes.rest.end()
    met = {kind for kind, table, found in outcomes.rest.met if table == name and found is fate}
    assert met >= {"snapshot", "replace", "expire"}
    keys = outcomes.truth.many(name)
    assert sorted(row["key"] for row in keys) == ["1", "2", "3", "4", "5", "6", "7", "9"]
    see_whole(outcomes.truth, name)
    assert sorted(row["key"] for row in deleted.of("t").collect()) == sorted(row["key"] for row in keys)
    deleted.close()


def _remember(deleted: DeletedKeysTable, key: int, *, old: bool = False) -> None:
    noted = datetime.now(UTC) - timedelta(days=9 if old else 0)
    row = {"connector": "a sink", "table": "t", "key": str(key), "date": 1, "noted_at": noted}
    writer = TableWriter(deleted.layout, "told")
    writer.write_rows(pa.RecordBatch.from_pylist([row], DELETED_KEYS_COLUMNS))
    deleted.add([*writer.close()])


@FATES
def test_expiry_meets_a_fate(outcomes: CommitOutcomes, fate: Fate) -> None:
    """Old snapshots go with their files, now or with the next expiry; the table keeps its rows and stays whole."""
    name = f"expired_{fate.name.lower()}"
    properties = {
        **CREATED_TABLE_PROPERTIES,
        EXPIRE_SNAPSHOTS_PROPERTY: "true",
        "history.expire.max-snapshot-age-ms": "0",
    }
    properties["history.expire.min-snapshots-to-keep"] = "2"
    told = ", ".join(f"'{key}'='{value}'" for key, value in {"format-version": "2", **properties}.items())
    outcomes.spark.sql(f"CREATE TABLE told.`default`.`{name}` (id BIGINT) TBLPROPERTIES ({told})")
    for key in range(6):
        outcomes.spark.sql(f"INSERT OVERWRITE told.`default`.`{name}` VALUES ({key})")
    table = outcomes.catalog.load(name)
    assert table is not None
    outcomes.rest.fates = {("expire", name): fate}
    done = expire_snapshots(table, properties)
    outcomes.rest.end()
    if not done:
        table.refresh()
        assert expire_snapshots(table, properties)
    assert not outcomes.rest.fates
    assert outcomes.ids(name) == [5]
    assert len(list(outcomes.truth.java(name).snapshots())) == 2
    see_whole(outcomes.truth, name)


@FATES
def test_a_new_table_and_its_columns_meet_a_fate(outcomes: CommitOutcomes, fate: Fate) -> None:
    """A table is there once with its partition fields, new columns are there once, and a spec for global deletes."""
    name = f"new_{fate.name.lower()}"
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "day", LongType()))
    outcomes.rest.fates = {("create", name): fate}
    settled = {"commit.retry.num-retries": "1"}
    table = outcomes.catalog.create(name, schema, (PartitionTerm("day", "identity"),), settled)
    outcomes.rest.end()
    assert not outcomes.rest.fates and table.unpartitioned_spec() is not None
    for kind, change in (
        ("schema", lambda: outcomes.catalog.evolve(table, pa.schema([("id", pa.int64()), ("more", pa.string())]))),
        ("other", lambda: table.settle("a property", lambda: _set(table, "k", "v"))),
    ):
        outcomes.rest.fates = {(kind, name): fate}
        change()
        outcomes.rest.end()
        assert not outcomes.rest.fates
    found = outcomes.truth.java(name)
    assert [str(field.name()) for field in found.schema().columns()] == ["id", "day", "more"]
    assert [str(field.name()) for field in found.spec().fields()] == ["day"]
    assert found.properties()["k"] == "v"


def _set(table: Table, key: str, value: str) -> None:
    table.java.updateProperties().set(key, value).commit()


@FATES
def test_a_repair_meets_a_fate(outcomes: CommitOutcomes, fate: Fate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Misleading bounds are gone, the rows are right, and every file of the table is there."""
    case = Case(key_type("uuid"), "equality-delete", 2, "parquet", None, list(Fate).index(fate), "told")
    for module in ("parquet_footer", "parquet"):
        monkeypatch.setattr(f"connector.iceberg.write.formats.{module}.UNORDERED_TYPES", ())
    written = fill(outcomes.spark, outcomes.catalog, case)
    monkeypatch.undo()
    outcomes.rest.fates = {("replace", case.name): fate}
    call_with_retries(lambda: _repair(outcomes.spark, written.table), ERRORS)
    outcomes.rest.end()
    assert not outcomes.rest.fates
    written.table.refresh()
    assert not find_misleading_bounds(written.table).manifests
    rows = outcomes.truth.many(case.name)
    assert sorted(row["v"] for row in rows) == sorted(written.model.values())
    see_whole(outcomes.truth, case.name)


@attrs.define
class _Writer:
    """A connector's batches to one table: as many rows as it committed, its offsets, its deleted keys."""

    outcomes: CommitOutcomes
    table: Table
    offsets: OffsetsTable
    deleted: DeletedKeysTable
    source: TableOffsetStore
    last: LastCommit = LastCommit()
    rows: list[int] = attrs.field(factory=list)
    at: int = 0

    def append(self) -> None:
        """Commit the next rows with their offset, as a sink does: refused files go, the batch comes again."""
        added = [self.at, self.at + 1]
        self.at += 2
        position = KafkaOffsets("c", {"t": "id"}, {("t", 0): self.at})

        def attempt() -> None:
            writer = TableWriter(self.table.layout(), "mixed")
            batch = pa.RecordBatch.from_pylist([{"id": key, "ts": key, "own": "a"} for key in added], COLUMNS)
            writer.write_rows(batch)
            files = [*writer.close()]
            try:
                pending = PendingCommit(
                    files, position, self.last, self.table.snapshot_id, guarded=False, replaces=self.at % 4 == 0
                )
                self.last = commit_files(self.table, pending, "a sink").stored
            except CommitRefused:
                for file in files:
                    self.table.delete_file(file.path)
                self.table.refresh()
                raise

        call_with_retries(attempt, ERRORS)
        self.rows += added
        call_with_retries(lambda: self.offsets.save(position, {self.table.name: StoredCommit(position)}), ERRORS)
        call_with_retries(
            lambda: self.source.put(self.table.name, TableOffset(SnapshotOffset(self.table.uuid, self.at))), ERRORS
        )

    def truncate(self) -> None:
        """Empty it of what is older than its newest rows."""
        until = ("ts", self.at - 2)
        call_with_retries(
            lambda: truncate_table(self.outcomes.spark, self.table, until, (("own", "a"),), name="a sink"), ERRORS
        )
        self.rows = [key for key in self.rows if key > until[1]]

    def remember(self) -> None:
        """Remember a deleted key, and tidy."""
        _remember(self.deleted, self.at)
        call_with_retries(self.deleted.clean_up, ERRORS)


COLUMNS = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("own", pa.string())])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", tiered(range(4), []))
def test_fates_in_any_order(outcomes: CommitOutcomes, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever each try of each commit meets, and each look after it, beside another writer: nothing is lost, doubled
    or unreadable, and all goes on by itself.
    """
    monkeypatch.setattr("connector.iceberg.state.deleted_keys_table.MAX_SNAPSHOTS", 4)
    monkeypatch.setattr("connector.iceberg.state.system_tables.MAX_SNAPSHOTS", 6)
    monkeypatch.setattr("connector.iceberg.state.system_tables.RETAINED_SNAPSHOTS", 3)
    chance, name = random.Random(seed), f"mixed_{seed}"
    outcomes.spark.sql(
        f"CREATE TABLE told.`default`.`{name}` (id BIGINT, ts BIGINT, own STRING) TBLPROPERTIES "
        "('format-version'='2', 'commit.retry.num-retries'='1', 'commit.retry.min-wait-ms'='10')"
    )
    table = outcomes.catalog.load(name)
    assert table is not None
    own = [f"_{what}_{seed}" for what in ("keys", "offsets", "positions")]
    deleted = DeletedKeysTable(outcomes.spark, outcomes.catalog, own[0], "a sink", timedelta(days=1))
    source = TableOffsetStore(OffsetRows(outcomes.catalog, own[2], "a source", SOURCE), "a source", ERRORS)
    writer = _Writer(outcomes, table, OffsetsTable(outcomes.catalog, own[1], "a sink"), deleted, source)
    foreign, noted = list[int](), list[int]()
    outcomes.rest.chance, outcomes.rest.fates = chance, {}
    try:
        for turn in range(8):
            writer.append()
            if chance.random() < 0.4:
                writer.truncate()
            if chance.random() < 0.4:
                writer.remember()
                noted.append(writer.at)
            if chance.random() < 0.4:
                foreign.append(-turn)
                outcomes.spark.sql(f"INSERT INTO told_behind.`default`.`{name}` VALUES (-{turn}, -{turn}, 'b')")
    finally:
        outcomes.rest.chance = None
    outcomes.rest.end()
    assert outcomes.ids(name) == sorted([*writer.rows, *foreign])
    for each in (name, *own):
        see_whole(outcomes.truth, each)
    assert sorted(int(row["key"]) for row in outcomes.truth.many(own[0])) == noted
    position = OffsetsTable(outcomes.catalog, own[1], "a sink").position
    assert position is not None and position.offsets == {("t", 0): writer.at}
    rows = OffsetRows(outcomes.catalog, own[2], "a source", SOURCE)
    stored = TableOffsetStore(rows, "a source", ERRORS).of(table.name)
    assert stored == TableOffset(SnapshotOffset(table.uuid, writer.at))


def _repair(spark: SparkSession, table: Table) -> None:
    table.refresh()
    found = find_misleading_bounds(table)
    assert found.manifests and remove_misleading_bounds(table, found)


@FATES
def test_offsets_that_are_set_meet_a_fate(outcomes: CommitOutcomes, fate: Fate) -> None:
    """They are exactly those that were given, and another connector's stay."""
    name = f"_offsets_{fate.name.lower()}"
    rival, own = (OffsetsTable(outcomes.catalog, name, who) for who in ("rival", "own"))
    rival.save(KafkaOffsets(offsets={("t", 0): 9}), {})
    own.save(KafkaOffsets(offsets={("t", 0): 1}), {"gone": StoredCommit(KafkaOffsets())})
    outcomes.rest.fates = {("snapshot", name): fate}
    call_with_retries(lambda: own.replace(KafkaOffsets(offsets={("t", 0): 5}), {}), ERRORS)
    outcomes.rest.end()
    assert not outcomes.rest.fates
    own.save(KafkaOffsets(offsets={("t", 0): 6}), {})
    for who, at in (("own", 6), ("rival", 9)):
        found = OffsetsTable(outcomes.catalog, name, who)
        assert found.position == KafkaOffsets(offsets={("t", 0): at}) and found.tables == {}
    see_whole(outcomes.truth, name)
