"""Groups of deletes and data files -> a frame of the positions that the deletes hit. Spark joins, on executors.

Of data files nothing but the key columns and the position is read, and of delete files the keys. Paths are numbers in
the join: they would be most of what is shuffled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import attrs
import orjson
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.errors import FatalError
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.iceberg.catalog.table import Table
from connector.iceberg.java import iterate, jvm
from connector.iceberg.read.frame_columns import FILE_COLUMN, POSITION_COLUMN
from connector.iceberg.read.scan_planning import FileScanTask, tasks_without_deletes
from connector.iceberg.read.table_reader import MAINTAINING, TableReader
from connector.iceberg.types.schemas.schema_json import Json
from connector.maintenance.conversion.plan import JoinGroup

PLACE_COLUMN = "place"
"""The data file, as its number in the order that it was asked for."""

BROADCAST_RECORDS = 500_000
"""Up to so many keys every executor gets them all; more are joined by a shuffle, and none passes the driver."""

_HASH, _PATH, _OLDEST, _NEWEST, _SCOPE = "file_hash", "path", "oldest", "newest", "scope"


@attrs.frozen(eq=False)
class PositionSearch:
    """Looks for deleted rows of one table; `tasks` are the data files by path."""

    spark: SparkSession
    table: Table
    tasks: Mapping[str, FileScanTask]

    def find(self, groups: Sequence[JoinGroup], places: Mapping[str, int]) -> DataFrame:
        """Return the numbers of data files and positions in them, some of them repeatedly where groups overlap.

        Args:
            groups: what is to be joined, at least one.
            places: the number of each data file.
        """
        return reduce(DataFrame.unionAll, [self._join(group, places) for group in groups])

    def _join(self, group: JoinGroup, places: Mapping[str, int]) -> DataFrame:
        reader = TableReader(self.spark, self.table, _key_schema(self._fields(), group.equality_ids), MAINTAINING)
        keys = [f"k{place}" for place in range(len(group.equality_ids))]
        deletes, rows = self._newest_deletes(reader, group, keys), self._rows(reader, group, keys, places)
        same = [_equal(rows[key], deletes[f"deleted_{key}"], required=self._all_required(group)) for key in keys]
        if group.scopes is not None:
            same.append(rows[_SCOPE] == deletes[_SCOPE])
        same.append(rows[_OLDEST] <= deletes[_NEWEST])
        few = group.records <= BROADCAST_RECORDS
        condition = reduce(Column.__and__, same)
        joined = rows.join(F.broadcast(deletes) if few else deletes.hint("shuffle_hash"), condition, "left_semi")
        return joined.select(PLACE_COLUMN, POSITION_COLUMN)

    def _newest_deletes(self, reader: TableReader, group: JoinGroup, keys: Sequence[str]) -> DataFrame:
        """Return each deleted key once, with the sequence number of its newest delete."""
        described = [_as_data_file(file.description) for file in group.deletes if file.description is not None]
        tasks = tasks_without_deletes(self.spark, self.table, self.table.content_files(described))
        scopes = group.scopes or {}
        of_files = {
            _PATH: pa.array([file.path for file in group.deletes], pa.string()),
            _NEWEST: pa.array([file.sequence_number for file in group.deletes], pa.int64()),
            _SCOPE: pa.array(
                [-1 if file.scope is None else scopes.get(file.scope, -1) for file in group.deletes], pa.int32()
            ),
        }
        rows = self._number_files(_with_keys(reader.read_live_rows(tasks), keys), of_files)
        names = [f"deleted_{key}" for key in keys]
        renamed = rows.select(*(F.col(key).alias(name) for key, name in zip(keys, names, strict=True)), _NEWEST, _SCOPE)
        by = [*names, _SCOPE] if group.scopes is not None else names
        return renamed.groupBy(*by).agg(F.max(_NEWEST).alias(_NEWEST))

    def _rows(self, reader: TableReader, group: JoinGroup, keys: Sequence[str], places: Mapping[str, int]) -> DataFrame:
        """Return key, data file and position of every row of the data files."""
        files = (self.tasks[file.path].java().file() for file in group.data_files)
        tasks = tasks_without_deletes(self.spark, self.table, files)
        scopes = group.scopes or {}
        of_files = {
            _PATH: pa.array([file.path for file in group.data_files], pa.string()),
            _OLDEST: pa.array(group.oldest, pa.int64()),
            _SCOPE: pa.array([scopes.get(file.scope, -1) for file in group.data_files], pa.int32()),
            PLACE_COLUMN: pa.array([places[file.path] for file in group.data_files], pa.int32()),
        }
        return self._number_files(_with_keys(reader.read_live_rows(tasks), keys), of_files)

    def _number_files(self, rows: DataFrame, of_files: Mapping[str, pa.Array]) -> DataFrame:
        """Put what is known of each file in the place of its path; told apart by a number made of the path.

        Raises:
            FatalError: two paths have the same number.
        """
        # As Arrow it is a relation of the plan, and looking at it no job.
        known = self.spark.createDataFrame(pa.table(dict(of_files))).withColumn(_HASH, F.xxhash64(_PATH))
        hashed = [row[0] for row in known.select(_HASH).collect()]
        if len(set(hashed)) < len(hashed):
            raise FatalError(
                f"table {self.table.name}: two of its files have paths of the same hash; rewrite its files "
                "(rewrite_data_files), which gives them other paths"
            )
        numbered = rows.withColumn(_HASH, F.xxhash64(FILE_COLUMN)).drop(FILE_COLUMN)
        return numbered.join(F.broadcast(known.drop(_PATH)), _HASH).drop(_HASH)

    def _fields(self) -> dict[int, Json]:
        return read_top_level_fields(self.spark, self.table)

    def _all_required(self, group: JoinGroup) -> bool:
        """Tell whether no row can have a null in these columns: they always were there, and required."""
        parser = jvm(self.spark).org.apache.iceberg.SchemaParser
        for entry in iterate(self.table.java.schemas().entrySet()):
            fields = {field["id"]: field for field in orjson.loads(parser.toJson(entry.getValue()))["fields"]}
            if not all(number in fields and fields[number]["required"] for number in group.equality_ids):
                return False
        return True


def read_top_level_fields(spark: SparkSession, table: Table) -> dict[int, Json]:
    """Return the columns that a table has, or had, by field id: each as its newest schema has it."""
    parser, found = jvm(spark).org.apache.iceberg.SchemaParser, dict[int, Json]()
    for entry in iterate(table.java.schemas().entrySet()):
        found |= {field["id"]: field for field in orjson.loads(parser.toJson(entry.getValue()))["fields"]}
    current = orjson.loads(parser.toJson(table.java.schema()))["fields"]
    return {**found, **{field["id"]: field for field in current}}


def _key_schema(fields: Mapping[int, Json], equality_ids: Sequence[int]) -> SnapshotSchema:
    # Optional whatever the table says: a file may lack a column that was added since.
    document = {
        "type": "struct",
        "schema-id": 0,
        "fields": [{**fields[number], "required": False} for number in equality_ids],
    }
    return SnapshotSchema(orjson.dumps(document).decode())


def _with_keys(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    named = (F.col(f"c{place}").alias(key) for place, key in enumerate(keys))
    return rows.select(*named, FILE_COLUMN, POSITION_COLUMN)


def _equal(row: Column, deleted: Column, *, required: bool) -> Column:
    """A null deletes nulls (spec, "Equality Delete Files")."""
    return row == deleted if required else row.eqNullSafe(deleted)


def _as_data_file(description: FileDescription) -> FileDescription:
    """Describe a delete file as one of rows, which readers read."""
    file = orjson.loads(description.json)
    kept = ("spec-id", "file-path", "file-format", "partition", "file-size-in-bytes", "record-count", "split-offsets")
    return FileDescription.of({"content": "data", **{name: file[name] for name in kept if name in file}})
