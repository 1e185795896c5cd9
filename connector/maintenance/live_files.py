"""Manifests of a table -> how many small data files, and delete files of each kind, it has. Counted on executors."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from connector.iceberg.catalog.snapshot_schema import lacks_spark_types
from connector.iceberg.catalog.table import Table
from connector.iceberg.java import activate_session, jvm, map_java_errors
from connector.maintenance.file_counts import FileCounts
from connector.maintenance.partitions import count_partitions
from connector.maintenance.size_tiers import small_file_bytes
from connector.settings.iceberg.maintenance.policies import RewritePolicy

_POSITION_DELETES, _EQUALITY_DELETES = 1, 2
"""What a file has, in numbers of the Iceberg specification; data is 0."""
_VECTORS = "PUFFIN"


def count_live_files(spark: SparkSession, table: Table, policy: RewritePolicy) -> FileCounts:
    """Return the files of the branch's newest snapshot, as the table was last read.

    Cost: reads the manifests, as a conversion and a rewrite do; one row comes to the driver. Of a table that Iceberg's
    Spark code does not read the driver reads them.

    Args:
        spark: the session.
        table: as it was last read.
        policy: which data files are small.

    Raises:
        RetriableError: the store is away.
        FatalError: a manifest cannot be read.
    """
    newest = table.snapshot_id
    if newest is None:
        return FileCounts(small_files=0)
    if lacks_spark_types(table.schema_json):
        return _count_on_driver(table, policy, newest)
    small_bytes = small_file_bytes(policy, table.layout().target_file_size_bytes)
    content, is_vector = F.col("content"), F.upper(F.col("file_format")) == _VECTORS
    activate_session(spark)
    with map_java_errors(f"counting files of {table.name}"):
        counted = _list_files(spark, table, newest).agg(
            _count((content == 0) & (F.col("file_size_in_bytes") < small_bytes), "small_files"),
            _count(content == _EQUALITY_DELETES, "equality_delete_files"),
            _count((content == _POSITION_DELETES) & ~is_vector, "position_delete_files"),
            _count((content == _POSITION_DELETES) & is_vector, "deletion_vectors"),
        )
        return FileCounts(snapshot_id=newest, **counted.collect()[0].asDict())


def _count_on_driver(table: Table, policy: RewritePolicy, newest: int) -> FileCounts:
    parts = count_partitions(table, policy)
    return FileCounts(
        snapshot_id=newest,
        small_files=sum(part.small_files for part in parts),
        equality_delete_files=sum(part.equality_delete_files for part in parts),
        position_delete_files=sum(part.position_delete_files for part in parts),
        deletion_vectors=sum(part.deletion_vectors for part in parts),
    )


def _count(which: Column, name: str) -> Column:
    return F.count(F.when(which, 1)).alias(name)


def _list_files(spark: SparkSession, table: Table, snapshot_id: int) -> DataFrame:
    java = jvm(spark)
    iceberg, sql, nothing = java.org.apache.iceberg, java.org.apache.spark.sql, java.scala.Option.empty()
    listing = iceberg.MetadataTableUtils.createMetadataTableInstance(table.java, iceberg.MetadataTableType.FILES)
    pinned = iceberg.spark.source.SparkTable.create(listing, iceberg.spark.TimeTravel.version(str(snapshot_id)))
    relation = sql.execution.datasources.v2.DataSourceV2Relation.create(pinned, nothing, nothing)
    return DataFrame(sql.classic.Dataset.ofRows(spark._jsparkSession, relation), spark)  # noqa: SLF001
