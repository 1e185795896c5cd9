"""Equality deletes as other engines write them: of a partition, of nulls, by changed columns -> converted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from attrs import evolve
from pyspark.sql import SparkSession

from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import Table
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.write.partitioning import UNPARTITIONED, Partition
from connector.iceberg.write.rolling_file import FileKind, RollingFile
from connector.iceberg.write.table_writer import TableWriter
from connector.maintenance.conversion.conversion import convert_deletes
from connector.settings.iceberg.catalog import CatalogSettings
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm
from tests.clients.lake import Lake
from tests.harness.tiers import tiered

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def catalog(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """A catalog of tables whose deletes others wrote."""
    properties = {"type": "hadoop", "warehouse": str(tmp_path_factory.mktemp("strangers"))}
    Lake(spark, "strangers", properties)
    return Catalog(spark, CatalogSettings("strangers", properties, ("default",), {}))


def _make(
    catalog: Catalog, name: str, kind: pa.DataType, by: tuple[PartitionTerm, ...] = (), version: int = 3
) -> Table:
    columns = pa.schema([("k", kind), ("p", pa.int32()), ("v", pa.int64())])
    return catalog.create(
        name, build_table_schema(columns, (), frozenset(), nanoseconds=True), by, {"format-version": str(version)}
    )


def _commit(table: Table, update: Any, method: str, descriptions: Sequence[FileDescription]) -> None:
    for file in table.content_files(descriptions):
        getattr(update, method)(file)
    update.commit()
    table.refresh()


def _add(table: Table, rows: Sequence[Row]) -> list[FileDescription]:
    columns = table.layout().columns
    arrays = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), columns, strict=True)]
    writer = TableWriter(table.layout(), "strangers")
    writer.write_rows(pa.RecordBatch.from_arrays(arrays, schema=columns))
    written = list(writer.close())
    _commit(table, table.java.newAppend(), "appendFile", written)
    return written


def _delete(table: Table, column: str, values: Sequence[Any], partition: Partition | None = None) -> None:
    layout = evolve(table.layout(), id_columns=(column,))
    kind = FileKind.equality_deletes(layout)
    if partition is not None:
        kind = evolve(kind, spec_id=layout.spec.spec_id)
    file = RollingFile(layout, kind, partition or UNPARTITIONED, "strangers")
    keys = pa.array(values, layout.key_fields[0].type)
    file.write(pa.RecordBatch.from_arrays([keys], schema=pa.schema(layout.key_fields)))
    _commit(table, table.java.newRowDelta(), "addDeletes", list(file.close()))


def _values(spark: SparkSession, name: str) -> list[int]:
    return sorted(row[0] for row in spark.sql(f"SELECT v FROM strangers.`default`.{name}").collect())


def _convert(spark: SparkSession, table: Table, name: str, right: list[int]) -> None:
    assert _values(spark, name) == right
    done = convert_deletes(spark, table, "test")
    assert done.converted and not done.unconverted
    assert dict(table.java.currentSnapshot().summary())["total-equality-deletes"] == "0"
    assert _values(spark, name) == right


def test_deletes_of_a_partition(spark: SparkSession, catalog: Catalog) -> None:
    """A delete of one partition takes no row out of another, beside one of all partitions."""
    table = _make(catalog, "partitioned", pa.int64(), (PartitionTerm("p", "identity"),))
    _add(table, [(1, 0, 10), (2, 0, 20), (1, 1, 11), (3, 1, 31), (2, 1, 21)])
    _delete(table, "k", [1], Partition("p=0", (0,)))
    _delete(table, "k", [3])
    _add(table, [(1, 0, 12), (3, 1, 32)])
    _convert(spark, table, "partitioned", [11, 12, 20, 21, 32])


def test_deletes_of_nulls(spark: SparkSession, catalog: Catalog) -> None:
    """A null in a delete takes the nulls out."""
    table = _make(catalog, "nulls", pa.string())
    _add(table, [(None, 0, 1), ("a", 0, 2), ("b", 0, 3), (None, 0, 4)])
    _delete(table, "k", [None, "b"])
    _add(table, [(None, 0, 5)])
    _convert(spark, table, "nulls", [2, 5])


def test_columns_that_changed_since(spark: SparkSession, catalog: Catalog) -> None:
    """Deletes by a column that was widened and renamed, by one that a data file lacks, and by one that was dropped."""
    table = _make(catalog, "changed", pa.int32())
    _add(table, [(1, 0, 1), (2, 0, 2), (3, 7, 3)])
    _delete(table, "k", [1])
    table.java.updateSchema().updateColumn("k", table.java.schema().findType("v")).renameColumn("k", "key").commit()
    table.java.updateSchema().addColumn("extra", table.java.schema().findType("v")).commit()
    table.refresh()
    _add(table, [(1, 0, 4, 0), (5, 0, 5, 1), (6, 0, 6, None)])
    _delete(table, "key", [5])
    _delete(table, "p", [7])
    _delete(table, "extra", [None])
    _add(table, [(9, 7, 9, None)])
    table.java.updateSchema().deleteColumn("p").commit()
    table.refresh()
    _convert(spark, table, "changed", [4, 9])


@pytest.mark.parametrize("version", tiered([2, 3], [3]))
def test_a_data_file_that_is_listed_again_after_a_delete(spark: SparkSession, catalog: Catalog, version: int) -> None:
    """A delete that applies to one of two listings of a data file stays, and takes no row of the other; what applies to
    other files alone is converted."""
    name = f"repeated{version}"
    table = _make(catalog, name, pa.int64(), (PartitionTerm("p", "identity"),), version)
    twice = _add(table, [(1, 0, 10), (2, 0, 20)])
    _add(table, [(1, 1, 11), (2, 1, 21)])
    _delete(table, "k", [1], Partition("p=0", (0,)))
    _delete(table, "k", [1], Partition("p=1", (1,)))
    _commit(table, table.java.newAppend(), "appendFile", twice)
    right = [10, 20, 20, 21]
    assert _values(spark, name) == right
    done = convert_deletes(spark, table, "test")
    assert _values(spark, name) == right
    assert done.converted == 1
    assert [count for _, count in done.unconverted] == [1]


@pytest.mark.parametrize("version", tiered([2, 3], [3]))
def test_a_data_file_that_is_listed_twice_before_a_delete(spark: SparkSession, catalog: Catalog, version: int) -> None:
    """A delete that applies to both listings of a data file is converted for both."""
    name = f"twice{version}"
    table = _make(catalog, name, pa.int64(), version=version)
    twice = _add(table, [(1, 0, 10), (2, 0, 20)])
    _commit(table, table.java.newAppend(), "appendFile", twice)
    _delete(table, "k", [1])
    _convert(spark, table, name, [20, 20])
