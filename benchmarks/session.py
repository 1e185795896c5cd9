"""catalog -> session: the one warehouse of a benchmark run, as the sink's properties and as a Spark session.

All contenders get the same Spark: local[2], 2 GiB of driver heap, and by `build_session` the same jars and collector.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.generate import ENVELOPE_COLUMNS, FLATTENED_COLUMNS
from connector.runtime.spark.session_builder import build_session
from connector.settings import CatalogSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = "default"
SPARK = {"spark.master": "local[2]", "spark.driver.memory": "2g", "spark.ui.enabled": "false"}
HOMEMADE_SPARK = SPARK | {"spark.sql.shuffle.partitions": "4"}
_TYPES = {
    "id": "BIGINT",
    "quantity": "BIGINT",
    "price": "DOUBLE",
    "discount": "DOUBLE",
    "active": "BOOLEAN",
    "updated_at": "BIGINT",
    "__source_ts_ns": "BIGINT",
    "__ts_ms": "BIGINT",
}


def catalog_properties(warehouse: Path) -> dict[str, str]:
    """Iceberg's JDBC catalog on a SQLite file in the warehouse."""
    return {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{warehouse / 'catalog.db'}",
        "jdbc.schema-version": "V1",
        "warehouse": str(warehouse),
        "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
    }


def open_session(app: str, warehouse: Path) -> SparkSession:
    """A session of the home-made contenders, the prefill and the check."""
    catalog = CatalogSettings(
        name=CATALOG, properties=catalog_properties(warehouse), namespace=("bench",), table_properties={}
    )
    return build_session(app, catalog, HOMEMADE_SPARK)


def sql_type(column: str) -> str:
    """The Spark SQL type of a column of the generated rows."""
    return _TYPES.get(column, "STRING")


def qualified(table: str) -> str:
    """`namespace.table` with the catalog, quoted for Spark SQL."""
    return ".".join(f"`{part}`" for part in (CATALOG, *table.split(".")))


def create_table(spark: SparkSession, table: str, upsert: bool, properties: dict[str, str]) -> None:
    """Create the table as the sink would: format v2, the key required and set as identifier when upserted."""
    columns = ENVELOPE_COLUMNS if upsert else FLATTENED_COLUMNS
    body = ", ".join(f"`{name}` {sql_type(name)}{' NOT NULL' if name == 'id' else ''}" for name in columns)
    options = ", ".join(f"'{name}'='{value}'" for name, value in ({"format-version": "2"} | properties).items())
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {qualified(table.split('.', maxsplit=1)[0])}")
    spark.sql(f"CREATE TABLE {qualified(table)} ({body}) USING iceberg TBLPROPERTIES ({options})")
    if upsert:
        spark.sql(f"ALTER TABLE {qualified(table)} SET IDENTIFIER FIELDS id")


def merge_properties(mode: str) -> dict[str, str]:
    """Table properties of a MERGE in `copy-on-write` or `merge-on-read`."""
    return {f"write.{verb}.mode": mode for verb in ("merge", "update", "delete")}
