"""A table that a sink of equality deletes writes to, and maintenance that others run beside it, held where it hurts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from attrs import define, field, frozen
from pyspark.sql import SparkSession

from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit import PendingCommit, commit_files
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.last_commit import LastCommit
from connector.iceberg.java import accept_callbacks, iterate, jvm
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.write.table_writer import TableWriter
from connector.settings.iceberg.catalog import CatalogSettings
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm
from tests.clients.lake import Lake

COLUMNS = pa.schema([("id", pa.int64()), ("p", pa.string()), ("n", pa.int64())])
CONNECTOR = "a sink"


@frozen
class MaintainedCatalog:
    """A catalog whose tables are made and maintained by tests."""

    spark: SparkSession
    name: str
    catalog: Catalog
    lake: Lake

    @staticmethod
    def open(spark: SparkSession, name: str, home: Path) -> MaintainedCatalog:
        """A catalog of this name with its files in `home`."""
        properties = {"type": "hadoop", "warehouse": str(home), "io-impl": "org.apache.iceberg.io.ResolvingFileIO"}
        lake = Lake(spark, name, properties)
        return MaintainedCatalog(spark, name, Catalog(spark, CatalogSettings(name, properties, ("default",), {})), lake)

    def make(
        self, table: str, *, version: int = 2, by: Sequence[PartitionTerm] = (), more: Mapping[str, str] | None = None
    ) -> MaintainedTable:
        """An empty table with the key `id`."""
        schema = build_table_schema(COLUMNS, ("id",), frozenset(), nanoseconds=False)
        made = self.catalog.create(table, schema, tuple(by), {"format-version": str(version), **(more or {})})
        self.catalog.ensure_delete_spec(made)
        return MaintainedTable(self, table, made)


@define(eq=False)
class MaintainedTable:
    """One such table: batches as the sink commits them, and what others do."""

    catalog: MaintainedCatalog
    name: str
    table: Table
    stored: LastCommit = LastCommit()
    offset: int = 0
    steps: list[int] = field(factory=list)

    @property
    def path(self) -> str:
        """Its name in SQL."""
        return f"{self.catalog.name}.`default`.`{self.name}`"

    def batch(
        self, rows: Sequence[tuple[int, str, int]] = (), deletes: Sequence[int] = (), checked: int | None = None
    ) -> None:
        """Commit rows, and equality deletes of keys, as one batch of the sink; `checked` where it has seen no more."""
        self.table.refresh()
        self.offset += 1
        writer = TableWriter(self.table.layout(), "test")
        if rows:
            columns = [
                pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), COLUMNS.types, strict=True)
            ]
            writer.write_rows(pa.RecordBatch.from_arrays(columns, schema=self.table.layout().columns))
        if deletes:
            layout = self.table.layout()
            writer.write_equality_deletes(
                pa.RecordBatch.from_arrays([pa.array(deletes)], schema=pa.schema(layout.key_fields))
            )
        position = KafkaOffsets("c", {}, {("t", 0): self.offset})
        base = self.table.snapshot_id if checked is None else checked
        pending = PendingCommit(list(writer.close()), position, self.stored, base, guarded=False, replaces=True)
        self.stored = commit_files(self.table, pending, CONNECTOR).stored

    def upsert(self, *rows: tuple[int, str, int]) -> None:
        """Commit rows, each after its key was deleted."""
        self.batch(rows, [row[0] for row in rows])

    def rows(self) -> list[tuple[int, int]]:
        """Key and number of each live row, by Iceberg's own reader."""
        return sorted((row["id"], row["n"]) for row in self.catalog.lake.rows(self.name))

    def compact(self, meanwhile: Callable[[], object] = lambda: None, options: Mapping[str, str] | None = None) -> None:
        """Run Iceberg's `rewrite_data_files`; `meanwhile` happens when its files are written, before its commit."""
        rewrite_held(self.catalog.spark, self.catalog.lake.java(self.name), meanwhile, options)
        self.table.refresh()

    def replace(
        self, gone: Sequence[Any], new: Sequence[Any] = (), *, numbered: Mapping[str, int] | None = None
    ) -> None:
        """Commit a rewrite as another engine does that looks at nothing: files out, files in.

        `numbered` has the data sequence numbers that delete files keep.
        """
        self.table.refresh()
        update = self.table.java.newRewrite().validateFromSnapshot(self.table.snapshot_id)
        for file in gone:
            update.deleteFile(file)
        for file in new:
            number = (numbered or {}).get(str(file.location()))
            update.addFile(file) if number is None else update.addFile(file, number)
        update.commit()
        self.table.refresh()

    def files(self) -> tuple[list[Any], list[Any]]:
        """Data files and delete files, in Java's form."""
        self.table.refresh()
        java, io, specs = (
            jvm(self.catalog.spark).org.apache.iceberg.ManifestFiles,
            self.table.java.io(),
            self.table.java.specs(),
        )
        newest = self.table.java.currentSnapshot()
        data = [f.copy() for m in iterate(newest.dataManifests(io)) for f in iterate(java.read(m, io, specs))]
        deletes = [
            f.copy()
            for m in iterate(newest.deleteManifests(io))
            for f in iterate(java.readDeleteManifest(m, io, specs))
        ]
        return data, deletes

    def write(self, *rows: tuple[int, str, int]) -> list[Any]:
        """Write a data file that no commit has yet, in Java's form."""
        layout = self.table.layout()
        writer = TableWriter(layout, "other")
        columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), COLUMNS.types, strict=True)]
        writer.write_rows(pa.RecordBatch.from_arrays(columns, schema=layout.columns))
        return list(self.table.content_files(list(writer.close())))


def rewrite_held(
    spark: SparkSession, table: Any, meanwhile: Callable[[], object], options: Mapping[str, str] | None = None
) -> None:
    """Rewrite all files of a Java table by Iceberg's action; something happens right before its commit."""
    java, session = jvm(spark), spark._jsparkSession
    java.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
    held = java.org.apache.iceberg.BaseTable(_HeldOperations(table.operations(), meanwhile), str(table.name()))
    action = java.org.apache.iceberg.spark.actions.SparkActions.get(session).rewriteDataFiles(held)
    for key, value in {"rewrite-all": "true", **(options or {})}.items():
        action = action.option(key, value)
    with accept_callbacks(spark):
        action.execute()


class _HeldOperations:
    """Iceberg's `TableOperations`: the table's own, but that something happens before the first commit."""

    def __init__(self, own: Any, meanwhile: Callable[[], object]) -> None:
        self._own, self._meanwhile, self._held = own, meanwhile, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def commit(self, base: Any, metadata: Any) -> None:
        """Commit, after what happens meanwhile."""
        if self._held:
            self._held = False
            self._meanwhile()
        self._own.commit(base, metadata)

    class Java:
        """Which Java interface this object stands for (Py4J's convention)."""

        implements = ("org.apache.iceberg.TableOperations",)
