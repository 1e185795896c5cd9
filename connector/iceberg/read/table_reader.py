"""Scan tasks -> a Spark DataFrame of exactly those files' rows, through Iceberg's own readers.

Tasks are staged under a key with a stand-in for the table, as Iceberg's own rewrite actions do: its schema is that of
the snapshot, columns named by their place (`c0`, `c1`, ...), with types that Spark lacks replaced by numbers; Iceberg's
readers go by field id and do not mind. Old files, whatever their schema, come out as the snapshot's rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from hashlib import sha1
from typing import Any

import attrs
import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import LongType, StringType, StructField, StructType

from connector.errors import FatalError
from connector.iceberg.catalog.snapshot_schema import SnapshotSchema, to_carrier_types
from connector.iceberg.catalog.table import Table
from connector.iceberg.java import iterate, jvm, load_class, map_java_errors, to_dict
from connector.iceberg.read.frame_columns import (
    DELETED_COLUMN,
    FILE_COLUMN,
    POSITION_COLUMN,
    ROW_ID_COLUMN,
    SEQUENCE_COLUMN,
    column_name,
)
from connector.iceberg.read.scan_planning import FileScanTask
from connector.iceberg.types.schemas.schema_json import Json, field_ids
from connector.iceberg.write.formats.format_limits import find_unreadable

_STAGING_PREFIX = "icebridge-"
READING, MAINTAINING = "read", "maintain"
"""What reads are for: those of a batch and those of maintenance, which are under way at once, are released apart."""

_RESERVED_COLUMNS = {
    FILE_COLUMN: (2147483646, "string"),
    POSITION_COLUMN: (2147483645, "long"),
    DELETED_COLUMN: (2147483644, "boolean"),
}
ROW_ID_FIELD_ID = 2147483540
_LINEAGE_COLUMNS = {ROW_ID_COLUMN: (ROW_ID_FIELD_ID, "long"), SEQUENCE_COLUMN: (2147483539, "long")}
"""Reserved field ids (spec, "Reserved Field IDs"): readers fill such columns by id, whatever their name."""

_SPARK_NAMES = {FILE_COLUMN: "_file", POSITION_COLUMN: "_pos", DELETED_COLUMN: "_deleted"}
_SMALLEST_SPLIT_BYTES, _LARGEST_SPLIT_BYTES = 4 * 1024**2, 128 * 1024**2
_OPEN_COST_BYTES = 4 * 1024**2
"""As many bytes as a file counts at least, whatever its size; Iceberg's own default."""


@attrs.frozen(eq=False)
class TableReader:
    """Reads tasks of one table through one snapshot's schema.

    Every frame has the columns `c0`, `c1`, ... and `file`, `pos`, `row_id` (null without lineage).
    """

    spark: SparkSession
    table: Table
    schema: SnapshotSchema
    purpose: str = READING

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the schema's columns in the frames."""
        return tuple(column_name(place) for place in range(len(self.schema.names)))

    def is_vectorized(self, tasks: Sequence[FileScanTask]) -> bool:
        """Tell whether files are read a column at a time: primitive columns, in Parquet."""
        return self.schema.flat and all(task.data_format == "parquet" for task in tasks)

    def read_live_rows(self, tasks: Sequence[FileScanTask], *, lineage: bool = False) -> DataFrame:
        """Return the rows of files that no delete of their tasks hits; with `lineage` also the column `sequence`."""
        if not tasks:
            return self.nothing()
        return self._lineage(tasks) if lineage else self._plain(tasks).drop(DELETED_COLUMN)

    def read_deleted_rows(self, tasks: Sequence[FileScanTask], *, lineage: bool = False) -> DataFrame:
        """Return the rows of files that the deletes of their tasks do hit."""
        if lineage and not self.is_vectorized(tasks):
            raise ValueError("lineage of deleted rows is read by position where rows are read one by one")
        rows = self._lineage(tasks, deleted=True) if lineage else self._plain(tasks)
        return rows.filter(F.col(DELETED_COLUMN)).drop(DELETED_COLUMN)

    def _plain(self, tasks: Sequence[FileScanTask]) -> DataFrame:
        """Read with Iceberg's metadata columns, which Spark hides as soon as the schema has one of them."""
        rows = self._stage(tasks, {})
        extra = [F.col(name).alias(ours) for ours, name in _SPARK_NAMES.items()]
        whole = rows.select("*", *extra, F.lit(None).cast(LongType()).alias(ROW_ID_COLUMN))
        return self._without_dropped(whole, tasks)

    def _lineage(self, tasks: Sequence[FileScanTask], *, deleted: bool = False) -> DataFrame:
        """Read with reserved columns under names of our own; `deleted` only works in the vectorised reader."""
        if not all(task.row_ids_readable for task in tasks):
            raise FatalError(
                f"table {self.table.name}: Iceberg reads no row ids from ORC files; rewrite its files as Parquet, "
                "or set write.format.default to orc and give the table identifier fields or message.key.columns"
            )
        wanted = {**_RESERVED_COLUMNS, **_LINEAGE_COLUMNS}
        if not deleted:
            del wanted[DELETED_COLUMN]
        return self._without_dropped(self._stage(tasks, wanted), tasks)

    def _stage(self, tasks: Sequence[FileScanTask], extra: dict[str, tuple[int, str]]) -> DataFrame:
        """Return the rows of staged tasks: the schema's columns, `extra` ones, those that only deletes go by."""
        self._check_formats(tasks)
        java = jvm(self.spark)
        key = f"{_STAGING_PREFIX}{self.purpose}-{uuid.uuid4().hex}"
        with map_java_errors(f"preparing a read of {self.table.name}"):
            table = self._stand_in(tasks, extra)
            java.org.apache.iceberg.spark.ScanTaskSetManager.get().stageTasks(
                table, key, [task.java() for task in tasks]
            )
            _spark_table_cache(self.spark).add(key, table)
            reader = self.spark.read.format("iceberg").option("split-size", str(self._split_bytes(tasks)))
            return reader.option("file-open-cost", str(_OPEN_COST_BYTES)).load(key)

    def _without_dropped(self, rows: DataFrame, tasks: Sequence[FileScanTask]) -> DataFrame:
        """Leave out what only deletes go by; to name what stays is a call of Java's for each of a table's columns."""
        dropped = [field["name"] for field in self._dropped_key_columns(tasks)]
        return rows.drop(*dropped) if dropped else rows

    def _check_formats(self, tasks: Sequence[FileScanTask]) -> None:
        """Refuse files that Spark refuses as a whole, so the table's own schema counts, not the reader's."""
        formats = {task.data_format for task in tasks} - {"parquet"}
        if not formats:
            return
        schema = jvm(self.spark).org.apache.iceberg.SchemaParser.toJson(self.table.java.schema())
        for data_format in sorted(formats):
            if unread := find_unreadable(schema, data_format):
                raise FatalError(
                    f"table {self.table.name}: Iceberg's Spark reader does not read {data_format} files with these "
                    f"columns: {', '.join(unread)}; set write.format.default to parquet and rewrite its files, or "
                    "leave it out"
                )

    def _split_bytes(self, tasks: Sequence[FileScanTask]) -> int:
        """Cut the work so that every core gets some, and no task much; a small file is as much as opening it costs."""
        work = sum(max(task.size_bytes, _OPEN_COST_BYTES) for task in tasks)
        share = work // (2 * self.spark.sparkContext.defaultParallelism)
        return min(max(share, _SMALLEST_SPLIT_BYTES), _LARGEST_SPLIT_BYTES)

    def _document(self, extra: dict[str, tuple[int, str]]) -> dict[str, Any]:
        try:
            document = self.schema.to_carrier(column_name)
        except ValueError as error:
            raise FatalError(
                f"table {self.table.name}: {error}, which Iceberg's Spark reader cannot read; leave the nested "
                "columns out (column.exclude.list), or the table"
            ) from error
        document["fields"] += [
            {"id": field_id, "name": name, "required": False, "type": kind} for name, (field_id, kind) in extra.items()
        ]
        return document

    def _dropped_key_columns(self, tasks: Sequence[FileScanTask]) -> list[Json]:
        """Return the columns of other schemas that equality deletes of these tasks go by, optional, as Spark has them.

        A column that was dropped since, or one that this reader was not asked for. For those Iceberg looks in all
        schemas of a table, in its metadata file, which may be gone by then, and with types that Spark lacks. They have
        names of their own here, because a name may have been taken again.
        """
        wanted = frozenset().union(*(task.equality_ids for task in tasks)) - field_ids(self.schema.document)
        if not wanted:
            return []
        parser, found = jvm(self.spark).org.apache.iceberg.SchemaParser, dict[int, Json]()
        for entry in iterate(self.table.java.schemas().entrySet()):
            # In the order of their ids: what a column was promoted to wins.
            found |= {f["id"]: f for f in to_carrier_types(orjson.loads(parser.toJson(entry.getValue())))["fields"]}
        return [{**found[i], "name": f"then{i}", "required": False} for i in sorted(wanted) if i in found]

    def _stand_in(self, tasks: Sequence[FileScanTask], extra: dict[str, tuple[int, str]]) -> Any:
        """Make a table of the wanted schema without snapshots; it has the real one's id, files and properties.

        Format version 2, whatever the table's: with 3 Iceberg adds lineage columns under Spark's names. Its name tells
        its types: by name and file executors keep keys of equality deletes, as the types were that read them first.
        """
        iceberg = jvm(self.spark).org.apache.iceberg
        current = self.table.java.operations().current()
        schema = self._document(extra)
        schema["fields"] += self._dropped_key_columns(tasks)
        document = {
            "format-version": 2,
            "table-uuid": self.table.uuid,
            "location": str(self.table.java.location()),
            "last-sequence-number": int(current.lastSequenceNumber()),
            "last-updated-ms": int(current.lastUpdatedMillis()),
            "last-column-id": int(current.lastColumnId()),
            "current-schema-id": 0,
            "schemas": [schema],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": to_dict(self.table.java.properties()),
            "snapshots": [],
        }
        place = str(current.metadataFileLocation())
        metadata = iceberg.TableMetadataParser.fromJson(place, orjson.dumps(document).decode())
        operations = iceberg.StaticTableOperations(metadata, self.table.java.io())
        types = sha1(orjson.dumps(schema), usedforsecurity=False).hexdigest()
        return iceberg.BaseTable(operations, f"{self.table.name}#{types}")

    def nothing(self) -> DataFrame:
        """Return a frame of the right columns without rows."""
        iceberg = jvm(self.spark).org.apache.iceberg
        parsed = iceberg.SchemaParser.fromJson(orjson.dumps(self._document({})).decode())
        types = StructType.fromJson(orjson.loads(iceberg.spark.SparkSchemaUtil.convert(parsed).json()))
        extra = [
            StructField(FILE_COLUMN, StringType()),
            StructField(POSITION_COLUMN, LongType()),
            StructField(ROW_ID_COLUMN, LongType()),
        ]
        return self.spark.createDataFrame([], StructType([*types.fields, *extra]))


def release_reads(spark: SparkSession, table: Table, purpose: str = READING) -> None:
    """Forget what was staged for reads of a table for a purpose: their DataFrames cannot be run after it."""
    manager = jvm(spark).org.apache.iceberg.spark.ScanTaskSetManager.get()
    for key in list(iterate(manager.fetchSetIds(table.java))):
        if str(key).startswith(f"{_STAGING_PREFIX}{purpose}-"):
            manager.removeTasks(table.java, key)
            _spark_table_cache(spark).remove(key)


def _spark_table_cache(spark: SparkSession) -> Any:
    """Get Iceberg's table cache by reflection: Py4J cannot call a static method that shares its name."""
    gateway = spark.sparkContext._gateway  # noqa: SLF001 - arrays are made by the gateway
    assert gateway is not None
    java, found = jvm(spark).java.lang, load_class(spark, "org.apache.iceberg.spark.SparkTableCache")
    method = found.getMethod("get", gateway.new_array(java.Class, 0))
    return method.invoke(None, gateway.new_array(java.Object, 0))
