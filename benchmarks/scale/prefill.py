"""job -> table: as many files as told from a few real ones, each a partition of its own.

Run as `python -m benchmarks.scale.prefill JOB.json` with warehouse and tables ({name: files}). A partition's value is
taken from the metadata, so one file of rows serves all partitions, under other names; a partition's second file has ids
of its own.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.generate import BASE_TS_NS, DATABASE
from benchmarks.metadata import local_path
from benchmarks.scale.plan import FILE_ROWS, PARTITION_VALUES
from benchmarks.session import CATALOG, open_session, qualified
from benchmarks.source.tables import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OLD_TS_NS = BASE_TS_NS - 1_000_000_000
_COLUMNS = {
    "id": ("BIGINT NOT NULL", "id"),
    "p": ("BIGINT NOT NULL", "0L"),
    **{f"n{place:03d}": ("BIGINT", f"id * {place + 3}") for place in range(4)},
    **{f"t{place:03d}": ("STRING", "'prefilled'") for place in range(4)},
    "__deleted": ("STRING", "'false'"),
    "__op": ("STRING", "'c'"),
    "__table": ("STRING", "'prefilled'"),
    "__source_ts_ns": ("BIGINT", f"{_OLD_TS_NS}L"),
    "__db": ("STRING", f"'{DATABASE}'"),
    "__ts_ms": ("BIGINT", f"{_OLD_TS_NS // 1_000_000}L"),
}
NEWER = f"`__source_ts_ns` > {_OLD_TS_NS}"
"""What rows of events meet, and none that was there at start."""


def main(job_file: str) -> None:
    """Create and fill the tables of the job."""
    job = json.loads(Path(job_file).read_text())
    spark = open_session("benchmark prefill", Path(job["warehouse"]))
    for table, files in job["tables"].items():
        generations = -(-files // PARTITION_VALUES)
        base = f"{table}_base"
        create(spark, base, "")
        values = [f"CAST({value} AS {kind.split(' ', 1)[0]}) AS `{name}`" for name, (kind, value) in _COLUMNS.items()]
        rows = spark.range(0, generations * FILE_ROWS, 1, generations).selectExpr(*values)
        rows.writeTo(qualified(base)).append()
        create(spark, table, "PARTITIONED BY (p)")
        repeat(spark, base, table, files)
    spark.stop()


def create(spark: SparkSession, table: str, partitioning: str) -> None:
    """Create an empty table, its key set as identifier."""
    body = ", ".join(f"`{name}` {kind}" for name, (kind, _) in _COLUMNS.items())
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS `{CATALOG}`.`{table.split('.', maxsplit=1)[0]}`")
    options = "TBLPROPERTIES ('format-version'='2', 'write.distribution-mode'='none')"
    spark.sql(f"CREATE TABLE {qualified(table)} ({body}) USING iceberg {partitioning} {options}")
    spark.sql(f"ALTER TABLE {qualified(table)} SET IDENTIFIER FIELDS id, p")


def repeat(spark: SparkSession, base: str, table: str, files: int) -> None:
    """Commit the files of `base` again and again, each time as another partition's."""
    java, jvm = load(spark, table).java, spark._jvm
    scan = load(spark, base).java.newScan().includeColumnStats().planFiles()
    made = [task.file() for task in jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists.newArrayList(scan)]
    made.sort(key=lambda file: int(lowest_id(jvm, java, file)))
    metrics = [metrics_without(jvm, file, java.schema().findField("p").fieldId()) for file in made]
    append = java.newAppend()
    for number in range(files):
        partition, generation = number % PARTITION_VALUES, number // PARTITION_VALUES
        builder = jvm.org.apache.iceberg.DataFiles.builder(java.spec()).withPath(linked(made[generation], number))
        builder.withFileSizeInBytes(made[generation].fileSizeInBytes()).withMetrics(metrics[generation])
        append.appendFile(builder.withPartitionPath(f"p={partition}").withFormat("PARQUET").build())
    append.commit()


def linked(file: Any, number: int) -> str:
    """Another name of a file: a table has each name once."""
    path = local_path(file.location())
    link = path.with_name(f"{path.stem}-{number}.parquet")
    os.link(path, link)
    return str(link)


def lowest_id(jvm: Any, java: Any, file: Any) -> Any:
    """The lowest id in a file, by its bounds."""
    field = java.schema().findField("id")
    conversions = jvm.org.apache.iceberg.types.Conversions
    return conversions.fromByteBuffer(field.type(), file.lowerBounds().get(field.fieldId()))


def metrics_without(jvm: Any, file: Any, field_id: int) -> Any:
    """The metrics of a file but for one column, whose values in the file are not those that readers see."""
    maps = []
    for name in ("columnSizes", "valueCounts", "nullValueCounts", "nanValueCounts", "lowerBounds", "upperBounds"):
        kept = jvm.java.util.HashMap(getattr(file, name)() or {})
        kept.remove(field_id)
        maps.append(kept)
    sizes, values, nulls, nans, lower, upper = maps
    return jvm.org.apache.iceberg.Metrics(file.recordCount(), sizes, values, nulls, nans, lower, upper)


if __name__ == "__main__":
    main(sys.argv[1])
