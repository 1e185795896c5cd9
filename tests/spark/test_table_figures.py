"""Tables after batches and maintenance -> what metrics and status tell of their files, beside what manifests have."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from connector.iceberg.catalog.table import Table
from connector.maintenance.known_counts import KnownCounts
from connector.maintenance.live_files import count_live_files
from connector.maintenance.maintainer import TaskOutcome
from connector.maintenance.partitions import count_partitions
from connector.maintenance.table_history import read_history
from connector.maintenance.table_state import TableState
from connector.maintenance.tasks import CONVERT, EXPIRE, ORPHANS, REWRITE
from connector.runtime.monitoring.prometheus.maintenance_metrics import MaintenanceMetrics
from connector.settings.iceberg.maintenance.policies import RewritePolicy
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm
from tests.harness.tiers import tiered
from tests.histories.workshop import Workshop

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

KINDS = ("equality_delete_files", "position_delete_files", "deletion_vectors")


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """One for all tests; each has a table of its own."""
    return Workshop(spark, tmp_path_factory.mktemp("figures"))


def _count_in_manifests(table: Table) -> dict[str, int]:
    found = count_partitions(table)
    names = ("data_files", "small_files", *KINDS)
    return {name: sum(getattr(each, name) for each in found) for name in names}


def _check_done(outcomes: list[TaskOutcome]) -> None:
    assert [one.failure for one in outcomes if one.failure] == []


def _without_small(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if name != "small_files"}


@pytest.mark.parametrize("version", tiered([2, 3], [3]))
def test_files_by_kind_are_those_of_the_manifests(spark: SparkSession, workshop: Workshop, version: int) -> None:
    """After batches, conversions, merges and expiries, in the process that did them and in one that begins later; small
    files are those of the last count.
    """
    written = workshop.written(61, version, PartitionTerm("p", "identity"))
    table, first, metrics = written.table, workshop.maintainer(), MaintenanceMetrics("s")
    first.listeners = (metrics,)

    def told() -> dict[str, int]:
        table.refresh()
        first.read_state(table)
        return metrics.tables()[table.name]

    before = _count_in_manifests(table)
    assert before["equality_delete_files"] > 0
    assert told().items() >= _without_small(before).items() and "small_files" not in told()
    _check_done(first.run(table, [CONVERT]))
    converted = told()
    assert converted.items() >= _count_in_manifests(table).items()
    assert converted["deletion_vectors" if version == 3 else "position_delete_files"] > 0
    assert converted["equality_delete_files"] == 0
    written.batch(dict.fromkeys(sorted(written.model)[::2]), Random(1))
    now = _count_in_manifests(table)
    assert told().items() >= _without_small(now).items() and now["equality_delete_files"] > 0
    assert told()["small_files"] == converted["small_files"]
    _check_done(first.run(table, [REWRITE, EXPIRE]))
    merged = _count_in_manifests(table)
    assert merged["data_files"] < now["data_files"]
    assert told().items() >= merged.items()
    # The snapshots before have expired: another process has only what is stored beside the table.
    assert told()["snapshots"] < converted["snapshots"] < told()["metadata_files"]
    later = workshop.maintainer("two").read_state(table)
    assert later.figures == told()
    assert count_live_files(spark, table, RewritePolicy(min_file_bytes=1)).small_files == 0


def test_bytes_of_orphans_are_those_that_were_found(workshop: Workshop) -> None:
    """By whoever looked last, and deleted since; the next look finds none."""
    table = workshop.written(62).table
    folder = Path(str(table.java.location()).removeprefix("file:")) / "data"
    long_ago = time.time() - 4 * 24 * 3600
    for name, size in (("old-1.parquet", 11), ("old-2.parquet", 31), ("young.parquet", 1000)):
        (folder / name).write_bytes(b"x" * size)
        if name.startswith("old"):
            os.utime(folder / name, (long_ago, long_ago))
    _check_done(workshop.maintainer().run(table, [ORPHANS]))
    assert not list(folder.glob("old-*")) and (folder / "young.parquet").exists()
    assert _look(workshop, table).orphan_bytes == 42
    _check_done(workshop.maintainer("two").run(table, [ORPHANS]))
    assert _look(workshop, table).orphan_bytes == 0


def _look(workshop: Workshop, table: Table) -> TableState:
    """As a process does that has only looked."""
    return KnownCounts(workshop.maintainer("three").leases).describe(table, read_history(table))
