"""Keys that hard deletes removed -> a side table that remembers them for a while, and back. On the driver.

A delete leaves no row that could tell how old a change is that comes again. Executors write the files; they are
committed before the tables' own commits: what a crash leaves behind then is a key too many, whose delete comes again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.iceberg.catalog.table import Table
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.commit.commit_attempts import commit_exactly_once
from connector.iceberg.commit.commit_summary import CREATED_BY
from connector.iceberg.java import jvm
from connector.iceberg.read.frame_columns import column_name
from connector.iceberg.read.scan_planning import plan_files
from connector.iceberg.read.table_reader import TableReader, release_reads
from connector.iceberg.state.deleted_keys_schema import (
    DELETE_ORDER_COLUMNS,
    DELETED_KEYS_COLUMNS,
    DELETED_KEYS_SCHEMA,
    SOURCE_POSITION_COLUMNS,
)
from connector.iceberg.state.small_files import merge_small_files
from connector.iceberg.state.system_tables import (
    MAX_SNAPSHOTS,
    SYSTEM_TABLE_PROPERTIES,
    count_snapshots,
    retain_newest_snapshots,
)
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm

DELETED_KEYS_PARTITIONS = (PartitionTerm("connector", "identity"), PartitionTerm("noted_at", "day"))
"""So that what is forgotten goes as whole files, by metadata alone."""
LAST_CLEANUP_PROPERTY = "icebridge.tidied-at-ms"
"""Table property: when it was last tidied, or made."""
CLEANUP_INTERVAL_MS = 24 * 3600 * 1000
"""Each save adds a small file per task: they are merged when there are many snapshots, or a day later."""


class DeletedKeysTable:
    """The deleted keys that one sink remembers; several sinks may share the table."""

    def __init__(self, spark: SparkSession, catalog: Catalog, table: str, name: str, retention: timedelta) -> None:
        """Open the table, or create it.

        Raises:
            RetriableError: the catalog is away.
        """
        self._spark, self._catalog, self._name, self._retention = spark, catalog, name, retention
        properties = {**SYSTEM_TABLE_PROPERTIES, LAST_CLEANUP_PROPERTY: _now_ms()}
        self._table = catalog.load(table) or catalog.create(
            table, DELETED_KEYS_SCHEMA, DELETED_KEYS_PARTITIONS, properties
        )
        self._complete()
        self._layout = self._table.layout()

    @property
    def layout(self) -> TableLayout:
        """What executors need to write files for the table."""
        self._layout = self._table.renew_layout(self._layout)
        return self._layout

    def _complete(self) -> None:
        """Add the columns that a table of an older version lacks."""
        if not self._missing():
            return

        def change() -> None:
            update, types = self._table.java.updateSchema(), jvm(self._spark).org.apache.iceberg.types.Types
            for name in self._missing():
                update.addColumn(name, types.LongType.get())
            update.commit()

        self._table.settle(f"adding columns to {self._table.name}", change)

    def _missing(self) -> list[str]:
        known = self._table.layout().columns.names
        return [name for name in SOURCE_POSITION_COLUMNS if name not in known]

    def add(self, files: Sequence[FileDescription]) -> None:
        """Commit files that executors wrote.

        Raises:
            CommitRefused: they are in no snapshot, nor will be: they may be deleted.
            CommitUnknown: nobody could tell until `errors.retry.timeout`; they must stay.
            RetriableError: the catalog stayed away.
        """

        def update() -> Any:
            append = self._table.java.newFastAppend().set(CREATED_BY, self._name)
            for file in self._table.content_files(files):
                append.appendFile(file)
            return append

        commit_exactly_once(self._table, uuid.uuid4().hex, update, few_manifests=True)

    def delete_file(self, path: str) -> None:
        """Delete a file that was not committed."""
        self._table.delete_file(path)

    def of(self, table: str) -> DataFrame:
        """Return key, date and place of what is remembered of a table; `close` after the frame was used."""
        self._table.refresh()
        base = self._table.snapshot_id
        reader = TableReader(self._spark, self._table, SnapshotSchema(self.layout.schema_json))
        rows = reader.read_live_rows(plan_files(self._spark, self._table, base) if base is not None else [])
        place = {name: F.col(column_name(i)) for i, name in enumerate(DELETED_KEYS_COLUMNS.names)}
        mine = rows.where((place["connector"] == self._name) & (place["table"] == table))
        return mine.select(*(place[name].alias(name) for name in ("key", *DELETE_ORDER_COLUMNS)))

    def close(self) -> None:
        """Let go of what `of` gave."""
        release_reads(self._spark, self._table)

    def clean_up(self) -> None:
        """Once in a while: forget what is older than the retention, merge small files, expire snapshots.

        May be called beside everything else: it loads the table for itself, and takes no core from batches' jobs but
        the driver's.

        Raises:
            RetriableError: another writer was faster; nothing is lost by leaving it for the next time.
        """
        if not _is_due(self._table):
            return
        table = self._catalog.load(self._table.name)
        if table is None or not _is_due(table):
            return
        now_ms = _now_ms()
        table.settle(
            f"tidying {table.name}",
            lambda: table.java.updateProperties().set(LAST_CLEANUP_PROPERTY, now_ms).commit(),
        )
        mine = {"type": "eq", "term": "connector", "value": self._name}
        self._forget(table, mine)
        merge_small_files(self._spark, table, orjson.dumps(mine).decode(), self._name)
        retain_newest_snapshots(table)

    def _forget(self, table: Table, mine: Mapping[str, str]) -> None:
        """Take out the files of days that are older than the retention, if there are any."""
        first = (datetime.now(UTC) - self._retention).strftime("%Y-%m-%dT00:00:00+00:00")
        since = {"type": "lt", "term": "noted_at", "value": first}
        old = orjson.dumps({"type": "and", "left": mine, "right": since}).decode()
        base = table.snapshot_id
        if base is None or not plan_files(self._spark, table, base, old):
            return

        def update() -> Any:
            return table.java.newDelete().set(CREATED_BY, self._name).deleteFromRowFilter(table.expression(old))

        commit_exactly_once(table, uuid.uuid4().hex, update)


def _is_due(table: Table) -> bool:
    """Tell by the table, not by this process, which may end after each batch."""
    if count_snapshots(table) >= MAX_SNAPSHOTS:
        return True
    tidied = table.java.properties().get(LAST_CLEANUP_PROPERTY)
    return tidied is None or time.time() * 1000 - int(tidied) > CLEANUP_INTERVAL_MS


def _now_ms() -> str:
    return str(time.time_ns() // 1_000_000)
