"""Thirty days of commits, by metadata alone -> metadata and what a commit costs stay as after the first days.

Files are described and never written: what a commit costs is metadata. A day has as many commits as the table keeps
snapshots, so that all of them have been exchanged by its end.
"""

from __future__ import annotations

import os
import statistics
import struct
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field, frozen
from pyspark.sql import SparkSession

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.retention_properties import (
    CREATED_TABLE_PROPERTIES,
    MAX_AGE_PROPERTY,
    MIN_SNAPSHOTS_PROPERTY,
)
from connector.iceberg.commit.commit import PendingCommit, commit_files
from connector.iceberg.commit.commit_summary import CREATED_BY
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.last_commit import LastCommit
from connector.iceberg.commit.snapshot_expiry import expire_snapshots
from connector.iceberg.write.partitioning import UNPARTITIONED
from connector.iceberg.write.rolling_file import FileKind, describe_file
from tests.histories.maintained import CONNECTOR, MaintainedCatalog, MaintainedTable

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

COMMITS_A_DAY = int(os.environ.get("ICEBRIDGE_COMMITS_A_DAY", "40"))
DAYS, PARTITIONS = 30, 8
"""Days; partitions of the topic, whose offsets are in each summary."""


@frozen
class Evening:
    """What a day left behind: the metadata file, files and bytes of its folder, manifests, snapshots."""

    metadata_bytes: int
    files: int
    folder_bytes: int
    manifests: int
    snapshots: int
    commit_ms: float


@define(eq=False)
class Month:
    """Days of a sink, of which each commit adds a data file and equality deletes."""

    table: MaintainedTable
    properties: Mapping[str, str]
    home: Path
    evenings: list[Evening] = field(factory=list)
    _number: int = 0
    _stored: LastCommit = LastCommit()

    def day(self, *, compacted: bool) -> None:
        """Commit, expire as the sink does, and compact as maintenance does where that is on."""
        took = []
        for _ in range(COMMITS_A_DAY):
            began = time.perf_counter()
            self._commit()
            expire_snapshots(self.table.table, self.properties)
            took.append(time.perf_counter() - began)
        if compacted:
            self._compact()
        self.evenings.append(self._look(1000 * statistics.median(took)))

    def _commit(self) -> None:
        self._number += 1
        table, layout = self.table.table, self.table.table.layout()
        kinds = (FileKind.data(layout), FileKind.equality_deletes(layout))
        files = [self._file(kind, f"{self._number}-{kind.content}", 100) for kind in kinds]
        offsets = {("shop.public.orders", partition): 10**9 + self._number for partition in range(PARTITIONS)}
        position = KafkaOffsets("YmE2ZTQ1ZDQtNGJhYi", {"shop.public.orders": "Y2E2ZTQ1ZDQtNGJhYi"}, offsets)
        pending = PendingCommit(files, position, self._stored, table.snapshot_id, guarded=False, replaces=True)
        self._stored = commit_files(table, pending, CONNECTOR).stored

    def _compact(self) -> None:
        """Exchange what is there for one file without deletes, by metadata alone."""
        data, deletes = self.table.files()
        table = self.table.table
        update = table.java.newRewrite().validateFromSnapshot(table.snapshot_id).set(CREATED_BY, CONNECTOR)
        for file in (*data, *deletes):
            update.deleteFile(file)
        described = self._file(FileKind.data(table.layout()), f"{self._number}-merged", 100)
        update.addFile(next(table.content_files([described]))).commit()
        table.refresh()

    def _file(self, kind: FileKind, name: str, count: int) -> FileDescription:
        ids = {column.field_id for column in kind.schema.fields}
        bounds = {number: struct.pack("<q", self._number) for number in ids & {1}}
        told: dict[str, Any] = {
            "record_count": count,
            "split_offsets": [4],
            "column_sizes": dict.fromkeys(ids, 800),
            "value_counts": dict.fromkeys(ids, count),
            "null_value_counts": dict.fromkeys(ids, 0),
            "nan_value_counts": {},
            "lower_bounds": bounds,
            "upper_bounds": bounds,
        }
        return describe_file(kind, UNPARTITIONED, f"{self.home}/data/{name}.parquet", 4096, told)

    def _look(self, commit_ms: float) -> Evening:
        table = self.table.table
        table.refresh()
        folder = list((self.home / "metadata").iterdir())
        current = table.java.operations().current()
        place = Path(str(current.metadataFileLocation()).removeprefix("file:"))
        manifests = table.java.currentSnapshot().allManifests(table.java.io())
        sizes = [file.stat().st_size for file in folder]
        counts = len(folder), sum(sizes), int(manifests.size()), int(current.snapshots().size())
        return Evening(place.stat().st_size, *counts, round(commit_ms, 1))


def _month(
    maintained: MaintainedCatalog, name: str, days: int, *, compacted: bool, more: Mapping[str, str] | None = None
) -> Month:
    kept = {MAX_AGE_PROPERTY: "0", MIN_SNAPSHOTS_PROPERTY: str(COMMITS_A_DAY)}
    properties = {**CREATED_TABLE_PROPERTIES, **kept, **(more or {})}
    table = maintained.make(name, more=properties)
    month = Month(table, properties, Path(str(table.table.java.location()).removeprefix("file:")))
    for _ in range(days):
        month.day(compacted=compacted)
    sys.stdout.write("".join(f"{name} day {day + 1}: {evening}\n" for day, evening in enumerate(month.evenings)))
    return month


@pytest.fixture(scope="module")
def maintained(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> MaintainedCatalog:
    """A catalog of its own."""
    return MaintainedCatalog.open(spark, "month_of_commits", tmp_path_factory.mktemp("month_of_commits"))


@pytest.mark.thorough
def test_metadata_stays_what_it_was(maintained: MaintainedCatalog) -> None:
    """With the properties that the sink gives a table nothing of its metadata grows from the fifth day on, where files
    are compacted: by then all metadata files that a table keeps have been exchanged.
    """
    month = _month(maintained, "compacted", DAYS, compacted=True)
    fifth = month.evenings[4]
    for evening in month.evenings[5:]:
        assert evening.snapshots <= 1.2 * COMMITS_A_DAY
        assert evening.metadata_bytes <= 1.05 * fifth.metadata_bytes
        assert evening.files <= 1.05 * fifth.files
        assert evening.folder_bytes <= 1.05 * fifth.folder_bytes
        assert evening.manifests <= fifth.manifests + 2


@pytest.mark.thorough
def test_the_metadata_file_does_not_grow_without_compaction(maintained: MaintainedCatalog) -> None:
    """Where nothing compacts, manifests grow with the files that they list; what each commit rewrites does not."""
    month = _month(maintained, "uncompacted", DAYS, compacted=False)
    fifth, last = month.evenings[4], month.evenings[-1]
    assert last.metadata_bytes <= 1.05 * fifth.metadata_bytes
    # Manifests are merged now and then: a week has the same number of files, not each day.
    weeks = [[evening.files for evening in part] for part in (month.evenings[4:11], month.evenings[-7:])]
    assert max(weeks[1]) <= 1.2 * max(weeks[0])
