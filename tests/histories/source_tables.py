"""Random or scripted histories -> tables of every kind, their changes, and a plain-Python copy that follows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from connector.iceberg.catalog.snapshot_schema import load_snapshot_schema
from connector.iceberg.catalog.snapshots import SnapshotHistory
from connector.iceberg.catalog.table import Table
from connector.iceberg.read.table_reader import TableReader, release_reads
from connector.iceberg.write.table_writer import TableWriter
from connector.source.changes.row_key import KeyKind, RowKey, choose_row_key
from connector.source.changes.snapshot_diff import read_changes
from connector.source.snapshots.next_step import (
    SkipSnapshot,
    SnapshotMode,
    SnapshotOffset,
    StreamChanges,
    TableHead,
    decide_next_step,
)
from connector.source.snapshots.table_history import read_history

CATALOG = "source_tests"
COW, MOR = "copy-on-write", "merge-on-read"
COLUMNS = "id bigint NOT NULL, p string, v string"
Plain = Any
Row = dict[str, Any]
Event = tuple[str, Plain, Plain, int | None]


@attrs.frozen
class Kind:
    """A kind of table: format version, how deletes are written, partitioned or not, with identifier columns or not."""

    version: int
    mode: str
    partitioned: bool
    identifiers: bool
    nested: bool = False

    def __str__(self) -> str:
        flags = [word for word in ("partitioned", "identifiers", "nested") if getattr(self, word)]
        return "-".join([f"v{self.version}", self.mode, *flags])


def use_catalog(spark: SparkSession, warehouse: Path, name: str = CATALOG) -> None:
    """Give the session a catalog in this folder; a session opens a name once, and keeps what it stood for then."""
    conf = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": str(warehouse)}
    for key, value in {**conf, ".cache-enabled": "false"}.items():
        spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}.db")


def plain(value: Any) -> Plain:
    """Give a value that can be compared and counted: NaN equals itself, -0.0 is not 0.0, entries of maps are a set."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return ("map", tuple(sorted((plain(k), plain(v)) for k, v in value.items())))
    if isinstance(value, list | tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, bytearray):
        return bytes(value)
    return value


def changes_of(spark: SparkSession, table: Table, snapshot_id: int, key: RowKey) -> DataFrame:
    """The changes of one snapshot."""
    return read_changes(reader_of(spark, table, snapshot_id), snapshot_id, key)


def reader_of(spark: SparkSession, table: Table, snapshot_id: int) -> TableReader:
    """A reader of the schema of a snapshot."""
    return TableReader(spark, table, load_snapshot_schema(spark, table, snapshot_id))


class Subject:
    """A table under test and its copy; `step` takes the next snapshots over and compares."""

    def __init__(
        self, spark: SparkSession, kind: Kind, columns: str, properties: str = "", catalog: str = CATALOG
    ) -> None:
        self.spark, self.kind, self.catalog = spark, kind, catalog
        self.short = f"db.t_{uuid4().hex[:8]}"
        self.name = f"{catalog}.{self.short}"
        partitions = "PARTITIONED BY (p)" if kind.partitioned else ""
        modes = ", ".join(f"'write.{what}.mode'='{kind.mode}'" for what in ("delete", "update", "merge"))
        spark.sql(
            f"CREATE TABLE {self.name} ({columns}) USING iceberg {partitions} "
            f"TBLPROPERTIES ('format-version'='{kind.version}', {modes}{properties})"
        )
        if kind.identifiers:
            names = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.String, 1)
            names[0] = "id"
            self.table().java.updateSchema().setIdentifierFields(names).commit()
        self.copy: Counter[Plain] = Counter()
        self.position = SnapshotOffset(self.table().uuid, None)

    def table(self) -> Table:
        """The table, freshly loaded."""
        loader: Any = self.spark._jvm.org.apache.iceberg.spark.Spark3Util
        java = loader.loadIcebergTable(self.spark._jsparkSession, self.name)
        return Table(self.spark, self.name, java, {})

    def sql(self, statement: str) -> None:
        """Run a statement; `{t}` is the table."""
        self.spark.sql(statement.replace("{t}", self.name))

    def call(self, procedure: str, arguments: str = "") -> None:
        """Call one of Iceberg's procedures on the table."""
        self.spark.sql(f"CALL {self.catalog}.system.{procedure}(table => '{self.short}'{arguments})").collect()

    def keys(self, table: Table, snapshot_id: int, configured: Sequence[str] = ()) -> RowKey:
        """What identifies rows at a snapshot."""
        schema = load_snapshot_schema(self.spark, table, snapshot_id)
        key = choose_row_key(schema, schema, configured, self.name, has_row_ids=table.has_row_ids)
        return RowKey(key.kind, key.columns)

    def events(self, snapshot_id: int, keys: RowKey | None = None) -> list[Event]:
        """The changes of one snapshot."""
        table = self.table()
        frame = changes_of(self.spark, table, snapshot_id, keys or self.keys(table, snapshot_id))
        found = [(row.op, plain(row.before), plain(row.after), row.row_id) for row in frame.collect()]
        release_reads(self.spark, table)
        return found

    def rows(self, snapshot_id: int) -> Counter[Plain]:
        """The table's rows at a snapshot, as Spark reads them."""
        return counted(self.spark.sql(f"SELECT * FROM {self.name} VERSION AS OF {snapshot_id}"))

    def next(self) -> StreamChanges | SkipSnapshot | None:
        """What the connector would do next; None when nothing is new."""
        table = self.table()
        snapshots = SnapshotHistory(self.spark, table)
        head = TableHead(table.uuid, snapshots.newest())
        decision = decide_next_step(
            self.name, self.position, SnapshotMode.INITIAL, head, lambda: read_history(snapshots)
        )
        return decision if isinstance(decision, StreamChanges | SkipSnapshot) else None

    def follow(self, keys: RowKey | None = None) -> list[list[Event]]:
        """Take every new snapshot over into the copy, compare after each, and give the events of each."""
        done = []
        while (step := self.next()) is not None:
            snapshot_id = step.snapshot.snapshot_id
            found = self.events(snapshot_id, keys) if isinstance(step, StreamChanges) else []
            kind = (keys or self.keys(self.table(), snapshot_id)).kind
            self.apply(found, kind)
            assert self.copy == self.rows(snapshot_id), f"{self.kind} differs after {step} with {found}"
            self.position = SnapshotOffset(self.position.table_uuid, snapshot_id)
            done.append(found)
        return done

    def apply(self, events: Iterable[Event], kind: KeyKind) -> None:
        """Apply events to the copy; each before-image must be there, and no event may be without effect."""
        gone: Counter[Plain] = Counter()
        new: Counter[Plain] = Counter()
        for op, before, after, row_id in events:
            assert (before is None, after is None) == {"c": (True, False), "d": (False, True), "u": (False, False)}[op]
            assert op != "u" or (before != after and kind != KeyKind.NONE)
            assert (row_id is not None) <= (kind == KeyKind.ROW_ID)
            gone.update([before] if before is not None else [])
            new.update([after] if after is not None else [])
        if kind == KeyKind.NONE:
            assert not gone & new, "a row that stayed has events"
        assert gone <= self.copy, "a before-image that was not in the table"
        self.copy = self.copy - gone + new

    def retyped(self) -> None:
        """Take the copy anew from the table after a schema change, which is no snapshot."""
        self.copy = counted(self.spark.table(self.name))

    def upsert(self, rows: list[dict[str, Any]], deleted: list[dict[str, Any]] = []) -> None:  # noqa: B006 - never changed
        """Write as our own sink does: global equality deletes of all keys, and the rows, in one snapshot."""
        upsert(self.table(), rows, deleted)

    def delete_spec(self) -> None:
        """Give a partitioned table an unpartitioned spec for global equality deletes, as the sink does."""
        java = self.table().java
        if not java.spec().isUnpartitioned():
            java.updateSpec().removeField("p").commit()
            java.updateSpec().addField("p").commit()


def filled(spark: SparkSession, kind: Kind, values: str, columns: str = COLUMNS) -> Subject:
    """A table whose rows, as SQL has them, are in one file, and are followed already."""
    subject = Subject(spark, kind, columns)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    subject.sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ * FROM VALUES {values}")
    subject.follow()
    return subject


def upsert(table: Table, rows: Iterable[Row], deleted: Iterable[Row] = ()) -> None:
    """Commit global equality deletes of the keys of both, and the rows, in one snapshot."""
    layout = table.layout()
    rows = list(rows)
    keys = [{name: row[name] for name in layout.keys} for row in [*rows, *deleted]]
    writer = TableWriter(layout, "test")
    key_columns = pa.schema([layout.columns.field(name) for name in layout.keys])
    writer.write_equality_deletes(pa.RecordBatch.from_pylist(keys, key_columns))
    if rows:
        writer.write_rows(pa.RecordBatch.from_pylist(rows, layout.columns))
    delta = table.java.newRowDelta()
    for description in writer.close():
        [file] = table.content_files([description])
        if not description.is_data:
            delta.addDeletes(file)
        else:
            delta.addRows(file)
    delta.commit()


def counted(frame: DataFrame) -> Counter[Plain]:
    """Count equal rows."""
    return Counter(plain(row) for row in frame.collect())
