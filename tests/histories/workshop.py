"""A catalog with tables of many small commits, and maintainers of them, in the tests' own process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from connector.errors import CommitUnknown
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.commit.commit_attempts import commit_exactly_once
from connector.iceberg.commit.settlement import _SettlingOperations
from connector.maintenance.lease import LeaseTable
from connector.maintenance.maintainer import Maintainer
from connector.maintenance.orphan_files import delete_orphan_files
from connector.settings import load
from connector.settings.iceberg.catalog import CatalogSettings
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm
from tests.clients.lake import Lake
from tests.histories.written_tables import Case, Written, fill
from tests.model.key_types import key_type

LONG = key_type("long")
OFFSETS = "_debezium_offset_storage"
BEFORE, AFTER = "before", "after"
"""A commit: when a process ends."""


class Workshop:
    """A catalog with tables, and maintainers of them."""

    def __init__(
        self, spark: SparkSession, home: Path, name: str = "maintained", own: Mapping[str, str] | None = None
    ) -> None:
        """Make an empty catalog of this name; `own` are Iceberg's properties of another one than of folders."""
        self.spark, self.home, self.name = spark, home, name
        properties = {"type": "hadoop", "warehouse": str(home), **(own or {})}
        self.lake = Lake(spark, name, properties)
        self.catalog = Catalog(spark, CatalogSettings(name, properties, ("default",), {}))
        file = home / "sink.properties"
        file.write_text(
            "bootstrap.servers=h:1\ntopics=t\niceberg.maintenance.rewrite.min-input-files=2\n"
            f"debezium.sink.iceberg.type=hadoop\ndebezium.sink.iceberg.warehouse={home}\n"
            f"debezium.sink.iceberg.catalog-name={name}\ndebezium.sink.iceberg.table-namespace=default\n"
        )
        self.settings = load([file]).table

    def maintainer(self, owner: str = "one", ago_s: int = 0) -> Maintainer:
        """A maintainer of its own, by whose clock it is some seconds earlier."""
        leases = LeaseTable.open(self.catalog, OFFSETS, owner)
        leases._now_ms = lambda: time.time_ns() // 1_000_000 - 1000 * ago_s
        return Maintainer(self.spark, self.catalog, self.settings, "test", leases, in_flight_ms=0)

    def written(self, seed: int, version: int = 3, by: PartitionTerm | None = None) -> Written:
        """A table after some batches, of which every snapshot may expire at once but the newest."""
        case = Case(LONG, "equality-delete", version, "parquet", by, seed, self.name)
        written = fill(self.spark, self.catalog, case)
        written.table.java.updateProperties().set("history.expire.max-snapshot-age-ms", "1").commit()
        written.table.refresh()
        return written

    def unfinished(self, written: Written) -> set[str]:
        """Names of data and delete files in the table's folder that no snapshot has."""
        folder = Path(str(written.table.java.location()).removeprefix("file:")) / "data"
        there = {file.name for file in folder.rglob("*") if file.suffix in (".parquet", ".puffin", ".avro")}
        known = self.spark.sql(f"SELECT DISTINCT file_path FROM {written.case.table}.all_files").collect()
        return there - {Path(row[0]).name for row in known}


def cut_commits(patch: pytest.MonkeyPatch, when: str) -> None:
    """Have maintenance end at its next commit as a killed process does: nothing is tidied up, no lease given back."""

    def die(*_: object, **__: object) -> Any:
        raise CommitUnknown("killed")

    def commit(*arguments: Any) -> None:
        if when == AFTER:
            commit_exactly_once(*arguments)
        die()

    attempt = _SettlingOperations._attempt

    def try_once(operations: Any, one: Any) -> None:
        if when == AFTER:
            attempt(operations, one)  # of files that are rewritten by parts the second is refused
        die()

    patch.setattr("connector.maintenance.conversion.conversion.commit_exactly_once", commit)
    patch.setattr(_SettlingOperations, "_attempt", try_once)
    patch.setattr(LeaseTable, "release", lambda *_, **__: None)


def disturb_tasks(patch: pytest.MonkeyPatch, disturb: Callable[[], object]) -> None:
    """Have something happen once, right before the next commit of maintenance, or before orphans are looked for."""
    attempt, left = _SettlingOperations._attempt, [disturb]

    def happen() -> None:
        if left:
            left.pop()()

    def commit(*arguments: Any) -> None:
        happen()
        commit_exactly_once(*arguments)

    def try_once(operations: Any, one: Any) -> Any:
        happen()
        return attempt(operations, one)

    def look(*arguments: Any, **named: Any) -> dict[str, int]:
        happen()
        return delete_orphan_files(*arguments, **named)

    patch.setattr("connector.maintenance.conversion.conversion.commit_exactly_once", commit)
    patch.setattr(_SettlingOperations, "_attempt", try_once)
    patch.setattr("connector.maintenance.maintainer.delete_orphan_files", look)
