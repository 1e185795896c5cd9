"""Tables with bounds that mislead readers -> `icebridge repair` -> the rows that their deletes were meant to leave."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from signal import SIGKILL, SIGTERM
from sqlite3 import connect
from subprocess import DEVNULL, Popen
from threading import Event
from typing import Any

import pytest
from attrs import evolve
from pyspark.sql import SparkSession

from connector.errors import CommitRefused
from connector.iceberg.java import jvm
from connector.iceberg.repair.manifest_repair import find_misleading_bounds, remove_misleading_bounds
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm
from tests.clients.lake import Lake
from tests.harness.paths import PROJECT
from tests.harness.tiers import tiered
from tests.histories.written_tables import (
    Case,
    Opened,
    Written,
    fill,
    open_catalog,
    open_warehouse,
    places_of,
    row_ids_of,
    values_by_iceberg,
    values_by_spark,
)
from tests.model.key_types import key_type
from tests.runs.host import Host
from tests.runs.processes import Sink, catalog

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

UUID = key_type("uuid")


@pytest.fixture(scope="module")
def opened(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """A catalog for the sink's code, and the same for readers."""
    return open_warehouse(spark, "repairs", tmp_path_factory.mktemp("repairs"))


@pytest.fixture
def misleading(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Files have bounds of uuids, as they were written before; until it is undone."""
    for module in ("parquet_footer", "parquet"):
        monkeypatch.setattr(f"connector.iceberg.write.formats.{module}.UNORDERED_TYPES", ())
    return monkeypatch


def _mended(spark: SparkSession, lake: Lake, written: Written, case: Case) -> None:
    """Mend a table: its rows are right, nothing is left to mend, and it goes on."""
    table = written.table
    table.refresh()
    found = find_misleading_bounds(table)
    assert found.manifests
    ids = row_ids_of(spark, case) if table.format_version > 2 else {}
    assert remove_misleading_bounds(table, found) == found.delete_files + found.data_files
    assert not find_misleading_bounds(table).manifests
    right = sorted(written.model.values())
    assert values_by_spark(spark, case) == values_by_iceberg(spark, lake, case) == right
    if ids:
        assert row_ids_of(spark, case) == {value: ids[value] for value in right}
    written.batch(dict.fromkeys(sorted(written.model)[:3], 90_000), Random(3))
    assert values_by_spark(spark, case) == sorted(written.model.values())


@pytest.mark.parametrize("version", tiered([2, 3], [3]))
def test_deletes_of_other_engines_stay(
    spark: SparkSession, opened: Opened, version: int, misleading: pytest.MonkeyPatch
) -> None:
    """Position deletes and deletion vectors, several in one file, share a manifest with the files that are mended."""
    tables, lake = opened
    case = Case(UUID, "equality-delete", version, "parquet", None, 80, "repairs")
    written = fill(spark, tables, case)
    java = written.table.java
    merging = java.updateProperties().set("write.delete.mode", "merge-on-read")
    merging.set("commit.manifest.min-count-to-merge", "2").commit()
    gone = set(sorted(written.model.values())[::3])
    spark.sql(f"DELETE FROM {case.table} WHERE v IN ({', '.join(map(str, gone))})")
    written.model = {key: value for key, value in written.model.items() if value not in gone}
    written.table.refresh()
    written.batch(dict.fromkeys(sorted(written.model)[:4], 50_000), Random(1))
    counted = spark.sql(f"SELECT count(*) FROM {case.table}.manifests WHERE content = 1").collect()
    assert counted[0][0] == 1
    misleading.undo()
    _mended(spark, lake, written, case)


def test_partition_fields_that_were_dropped(
    spark: SparkSession, opened: Opened, misleading: pytest.MonkeyPatch
) -> None:
    """A spec with none but dropped fields, which version 1 leaves behind, has files with a partition or without."""
    tables, lake = opened
    case = Case(UUID, "copy-on-write", 1, "parquet", PartitionTerm("p", "identity"), 6, "repairs")
    written = fill(spark, tables, case)
    written.table.java.updateSpec().removeField("p").commit()
    written.table.java.updateProperties().set("format-version", "2").commit()
    written.table.refresh()
    written.case = evolve(case, mode="equality-delete")
    written.batch(dict.fromkeys(sorted(written.model)[:4], 50_000), Random(1))
    misleading.undo()
    _mended(spark, lake, written, case)


def test_partitions_of_two_uuids(spark: SparkSession, opened: Opened, misleading: pytest.MonkeyPatch) -> None:
    """Manifests name the type of the second by that of the first, of a dropped field of version 1 too."""
    tables, lake = opened
    case = Case(UUID, "copy-on-write", 1, "parquet", PartitionTerm("k", "identity"), 7, "repairs")
    written = fill(spark, tables, case)
    java = written.table.java
    java.updateSpec().removeField("k").commit()
    java.updateSpec().addField("again", jvm(spark).org.apache.iceberg.expressions.Expressions.ref("k")).commit()
    java.updateProperties().set("format-version", "2").commit()
    written.table.refresh()
    written.case = evolve(case, mode="equality-delete")
    written.batch(dict.fromkeys(sorted(written.model)[:4], 50_000), Random(1))
    misleading.undo()
    _mended(spark, lake, written, case)


def test_another_writer_is_faster(spark: SparkSession, opened: Opened, misleading: pytest.MonkeyPatch) -> None:
    """Manifests that were merged since they were looked at: nothing is committed as if it were a repair."""
    tables, lake = opened
    case = Case(UUID, "equality-delete", 2, "parquet", None, 123, "repairs")
    written = fill(spark, tables, case)
    written.table.java.updateProperties().set("commit.manifest.min-count-to-merge", "2").commit()
    misleading.undo()
    repairing = tables.load(case.name)
    assert repairing is not None
    found = find_misleading_bounds(repairing)
    written.table.refresh()
    written.batch(dict.fromkeys(sorted(written.model)[:4], 50_000), Random(1))
    with pytest.raises(CommitRefused):
        remove_misleading_bounds(repairing, found)
    written.table.refresh()
    assert written.table.java.currentSnapshot().operation() == "overwrite"
    _mended(spark, lake, written, case)


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["equality-delete", "position-delete", "copy-on-write"])
def test_repairs_beside_a_sink_that_goes_on(
    spark: SparkSession, opened: Opened, misleading: pytest.MonkeyPatch, mode: str
) -> None:
    """Repaired again and again while batches land, which bring such bounds in anew: no row and no delete is lost."""
    tables, lake = opened
    case = Case(UUID, mode, 2, "parquet", None, 321, "repairs")
    written, rng, over = fill(spark, tables, case), Random(5), Event()
    repairing = tables.load(case.name)
    assert repairing is not None
    repaired = list[int]()

    def repair() -> None:
        while not over.is_set():
            repairing.refresh()
            found = find_misleading_bounds(repairing)
            with suppress(CommitRefused):
                repaired.append(remove_misleading_bounds(repairing, found) if found.manifests else 0)

    with ThreadPoolExecutor(1) as beside:
        end = beside.submit(repair)
        try:
            for number in range(12):
                keys = rng.sample(sorted(written.model), 5)
                changes = {key: None if rng.random() < 0.3 else 70_000 + number * 10 + n for n, key in enumerate(keys)}
                _land(written, changes, rng)
        finally:
            over.set()
        end.result(60)
    assert sum(repaired) > 0
    misleading.undo()
    written.table.refresh()
    if (found := find_misleading_bounds(written.table)).manifests:
        remove_misleading_bounds(written.table, found)
    assert values_by_spark(spark, case) == values_by_iceberg(spark, lake, case) == sorted(written.model.values())


def _land(written: Written, changes: dict[Any, int | None], rng: Random) -> None:
    """Take a batch in, looked up anew where the repair was faster."""
    for _ in range(20):
        with suppress(CommitRefused):
            return written.batch(changes, rng)
        written.table.refresh()
    raise AssertionError("the repair was faster each time")


@pytest.mark.thorough
def test_a_repair_that_is_killed_changes_nothing_by_half(
    spark: SparkSession, tmp_path: Path, misleading: pytest.MonkeyPatch
) -> None:
    """SIGKILL once it has begun to write: readers have the table of before or of after, and the next one ends it."""
    (tmp_path / "warehouse").mkdir()
    name, properties = "repair_killed", catalog(tmp_path)
    tables, lake = open_catalog(spark, name, properties)
    case = Case(UUID, "equality-delete", 3, "parquet", PartitionTerm("p", "identity"), catalog=name)
    written = fill(spark, tables, case)
    misleading.undo()
    before, right = values_by_spark(spark, case), sorted(written.model.values())
    command = [sys.executable, "-m", "connector", "repair", "--execute", str(_write_file(tmp_path, name, properties))]
    for _ in range(2):
        seen = len(list(tmp_path.glob("**/*-mended.avro")))
        process = Popen(command, cwd=PROJECT, start_new_session=True, stdout=DEVNULL, stderr=DEVNULL)
        while process.poll() is None and len(list(tmp_path.glob("**/*-mended.avro"))) == seen:
            time.sleep(0.003)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, SIGKILL)
        process.wait(30)
        assert values_by_spark(spark, case) in (before, right)
    written.table.refresh()
    if find_misleading_bounds(written.table).manifests:
        _mended(spark, lake, written, case)
    assert values_by_iceberg(spark, lake, case) == sorted(written.model.values())


def _write_file(folder: Path, name: str, properties: Mapping[str, str]) -> Path:
    """The file of a sink that has this catalog, and whose broker nobody asks."""
    file = folder / "sink.properties"
    lines = {f"debezium.sink.iceberg.{key}": value for key, value in properties.items()}
    lines |= {"name": name, "bootstrap.servers": "localhost:1", "topics": "t", "debezium.sink.type": "iceberg"}
    lines["debezium.sink.iceberg.catalog-name"] = name
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return file


@pytest.mark.thorough
def test_a_repair_that_is_stopped_ends_between_two_tables(
    spark: SparkSession, tmp_path: Path, misleading: pytest.MonkeyPatch
) -> None:
    """SIGTERM to all of its processes, twice, while it repairs a table: that one is done, no other one is begun, and
    none of its processes is left; the next repair does the rest."""
    (tmp_path / "warehouse").mkdir()
    name, properties = "repair_stopped", catalog(tmp_path)
    tables, _ = open_catalog(spark, name, properties)
    cases = [Case(UUID, "equality-delete", version, "parquet", None, catalog=name) for version in (2, 3)]
    filled = [fill(spark, tables, case) for case in cases]
    misleading.undo()
    file = _write_file(tmp_path, name, properties)

    def count_mended() -> int:
        for one in filled:
            one.table.refresh()
        return sum(not find_misleading_bounds(one.table).manifests for one in filled)

    repairing = Sink(file, ("--execute",), "repair")
    try:
        assert repairing.wait_until(lambda: any(tmp_path.glob("**/*-mended.avro")), 120, 0.003), repairing.text()
        os.killpg(repairing.process.pid, SIGTERM)
        run = repairing.terminate_group(60)
        repairing.wait_for_group(60)
    finally:
        repairing.kill()
    assert (run.code, count_mended()) == (143, 1), run.text
    assert run.text.count("stopped as asked, before the command had finished") == run.text.count("stopped a") == 1
    assert "Traceback" not in run.text
    assert Sink(file, ("--execute",), "repair").wait(120).code == 0
    assert count_mended() == 2
    for case, written in zip(cases, filled, strict=True):
        assert values_by_spark(spark, case) == sorted(written.model.values())


@pytest.mark.parametrize("version", tiered([2, 3], [3]))
def test_deletes_that_were_left_out_apply(
    spark: SparkSession, host: Host, tmp_path: Path, version: int, misleading: pytest.MonkeyPatch
) -> None:
    """A dry run changes nothing; then the rows are right for all readers, files and their numbers are what they were,
    and the table goes on."""
    name = f"repair_{version}"
    (tmp_path / "warehouse").mkdir()
    properties = catalog(tmp_path)
    tables, lake = open_catalog(spark, name, properties)
    case = Case(UUID, "equality-delete", version, "parquet", PartitionTerm("p", "identity"), catalog=name)
    written = fill(spark, tables, case)
    misleading.undo()
    right = sorted(written.model.values())
    assert len(values_by_spark(spark, case)) > len(right)
    found = find_misleading_bounds(written.table)
    assert (found.columns, found.delete_files > 0, found.data_files > 0) == (("k",), True, True)
    before = written.table.snapshot_id
    places, ids = places_of(spark, case), row_ids_of(spark, case) if version > 2 else {}

    file = _write_file(tmp_path, name, properties)
    assert host.call("repair", str(file)).code == 0
    assert find_misleading_bounds(tables.load(case.name)) == found
    said = host.call("repair", "--execute", "--table", case.name, str(file))
    assert said.code == 0, said.log

    assert values_by_spark(spark, case) == right
    assert values_by_iceberg(spark, lake, case) == right
    assert places_of(spark, case) == places
    if version > 2:
        assert row_ids_of(spark, case) == {value: ids[value] for value in right}
    written.table.refresh()
    assert not find_misleading_bounds(written.table).manifests
    if version > 2:
        written.table.java.manageSnapshots().createBranch("audit", before).commit()
    lake.java(case.name).expireSnapshots().expireOlderThan(2**60).retainLast(1).commit()
    written.batch(dict.fromkeys(list(written.model)[:3], 10_000), Random(3))
    assert values_by_iceberg(spark, lake, case) == sorted(written.model.values())
    assert host.call("repair", str(file)).code == 0
    if version > 2:
        _say_what_cannot_be_done(host, file, tmp_path / "catalog.db", written)


def _say_what_cannot_be_done(host: Host, file: Path, database: Path, written: Written) -> None:
    """Other branches, names that are no table's, tables that nobody can read, namespaces without any."""
    name = written.case.name
    said = host.call("repair", "--execute", str(file))
    assert said.code == 0, said.log
    assert "branch audit" in said.out
    assert "nothing in them" not in said.out
    for wrong in ("nowhere", "elsewhere.t", f"default.{name}.snapshots", "default."):
        said = host.call("repair", "--table", name, "--table", wrong, str(file))
        assert (said.code, wrong in said.log) == (3, True), said.log
    said = host.call("repair", "-X", "debezium.sink.iceberg.table-namespace=empty", str(file))
    assert (said.code, "namespace empty" in said.log) == (3, True), said.log
    with connect(database) as rows:
        columns = "catalog_name, table_namespace, table_name, metadata_location, iceberg_type"
        for table, at in (("with.dots", "metadata_location"), ("lost", "'/nowhere/1.metadata.json'")):
            kept = f"SELECT catalog_name, table_namespace, ?, {at}, iceberg_type FROM iceberg_tables"
            rows.execute(f"INSERT INTO iceberg_tables ({columns}) {kept} WHERE table_name = ?", (table, name))
    said = host.call("repair", "--execute", str(file))
    assert (said.code, "lost" in said.log) == (1, True), said.log
    assert said.out.count("branch audit") == 2
