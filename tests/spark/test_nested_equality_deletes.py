"""Equality deletes by fields within structs -> readers that fail: why the sink writes none (docs/decisions/0023)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tests.clients.lake import Lake
from tests.runs.processes import catalog

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


def _delete(spark: SparkSession, table: Any, field_id: int, around: int, file: Path) -> None:
    """Write and commit an equality delete of customer.id = 1, as Iceberg's own writers lay it out."""
    inside = pa.field("id", pa.int64(), False, {"PARQUET:field_id": str(field_id)})
    struct = pa.field("customer", pa.struct([inside]), False, {"PARQUET:field_id": str(around)})
    pq.write_table(pa.Table.from_arrays([pa.array([{"id": 1}], struct.type)], schema=pa.schema([struct])), file)
    jvm: Any = spark._jvm
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    ids = gateway.new_array(jvm.int, 1)
    ids[0] = field_id
    iceberg, path = jvm.org.apache.iceberg, table.io().newInputFile(str(file))
    metrics = iceberg.parquet.ParquetUtil.fileMetrics(path, iceberg.MetricsConfig.forTable(table))
    builder = iceberg.FileMetadata.deleteFileBuilder(table.spec()).ofEqualityDeletes(ids).withInputFile(path)
    deletes = builder.withMetrics(metrics).withFormat(iceberg.FileFormat.PARQUET).build()
    table.newRowDelta().addDeletes(deletes).commit()


def test_queries_that_leave_the_key_out_fail(spark: SparkSession, tmp_path: Path) -> None:
    """With the struct all is right; without it, and for count(*), Iceberg's Spark reader fails. The day that this test
    does, equality deletes can be written for such keys."""
    (tmp_path / "warehouse").mkdir()
    lake, full = Lake(spark, "nested_deletes", catalog(tmp_path)), "nested_deletes.`default`.t"
    spark.sql("CREATE NAMESPACE nested_deletes.`default`")
    columns = "customer STRUCT<id: BIGINT NOT NULL, label: STRING> NOT NULL, name STRING"
    spark.sql(f"CREATE TABLE {full} ({columns}) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    lake.java("t").updateSchema().setIdentifierFields(["customer.id"]).commit()
    rows = ", ".join(f"(named_struct('id', {n}L, 'label', 'l'), 'n{n}')" for n in (1, 2))
    spark.sql(f"INSERT INTO {full} VALUES {rows}")
    table = lake.java("t")
    schema = table.schema()
    _delete(
        spark, table, schema.findField("customer.id").fieldId(), schema.findField("customer").fieldId(), tmp_path / "d"
    )
    assert [row["name"] for row in spark.sql(f"SELECT * FROM {full}").collect()] == ["n2"]
    for query in (f"SELECT name FROM {full}", f"SELECT count(*) FROM {full}", f"SELECT customer.label FROM {full}"):
        with pytest.raises(Py4JJavaError, match="Missing required field: id"):
            spark.sql(query).collect()
