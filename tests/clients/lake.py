"""Iceberg table -> rows as Python values: read by Iceberg itself, equality deletes applied, types exact.

Spark reads what it can; it refuses every table with a `time` column (Iceberg 1.12: "Spark does not support time
fields"), so small tables are read by Iceberg's generic reader over Py4J, about 1 ms per value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Any

from pyspark.sql import SparkSession

Row = dict[str, Any]


class Lake:
    """The tables of one catalog, opened through Iceberg's own Java code and not through the sink's."""

    def __init__(self, spark: SparkSession, name: str, properties: Mapping[str, str]) -> None:
        self._spark = spark
        self._name = name
        self._jvm: Any = spark._jvm
        for key, value in {**properties, "cache-enabled": "false"}.items():
            spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
        spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")

    def names(self, namespace: str = "default") -> set[str]:
        """The names of all tables, those of the connector's own bookkeeping (leading underscore) left out."""
        listed = self._spark.sql(f"SHOW TABLES IN {self._name}.`{namespace}`").collect()
        return {r["tableName"] for r in listed if not r["tableName"].startswith("_")}

    def java(self, table: str, namespace: str = "default") -> Any:
        """The Java `Table`, fresh."""
        loader = self._jvm.org.apache.iceberg.spark.Spark3Util
        return loader.loadIcebergTable(self._spark._jsparkSession, f"{self._name}.`{namespace}`.`{table}`")

    def rows(self, table: str, namespace: str = "default") -> list[Row]:
        """All live rows by Iceberg's generic reader, any type; for tables of some hundred rows."""
        opened = self.java(table, namespace)
        names = [str(f.name()) for f in opened.schema().columns()]
        scan = self._jvm.org.apache.iceberg.data.IcebergGenerics.read(opened).build()
        records = scan.iterator()
        out = []
        while records.hasNext():
            record = records.next()
            out.append({n: self._value(record.getField(n)) for n in names})
        scan.close()
        return out

    def many(self, table: str) -> list[Row]:
        """All live rows by Spark; for tables without `time` columns, any size that fits in memory."""
        frame = self._spark.table(f"{self._name}.`default`.`{table}`")
        return list(frame.toArrow().to_pylist())

    def types(self, table: str) -> dict[str, str]:
        """Column -> Iceberg type, as in `decimal(10, 2)`."""
        return {str(f.name()): str(f.type().toString()) for f in self.java(table).schema().columns()}

    def identifiers(self, table: str) -> set[str]:
        """The names of the identifier fields."""
        return {str(n) for n in self.java(table).schema().identifierFieldNames()}

    def summaries(self, table: str, namespace: str = "default") -> list[dict[str, str]]:
        """The summary of each snapshot, oldest first."""
        return [dict(s.summary()) for s in self.java(table, namespace).snapshots()]

    def files(self, table: str, namespace: str = "default") -> list[Row]:
        """The live data and delete files: content (0 data, 1 position, 2 equality), spec_id, record_count ..."""
        metadata = self._spark.table(f"{self._name}.`{namespace}`.`{table}`.files")
        return [json.loads(text) for text in metadata.drop("readable_metrics").toJSON().collect()]

    def _value(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return value
        kind = type(value).__name__
        if kind == "JavaList":
            return [self._value(v) for v in value]
        if kind == "JavaMap":
            return {self._value(k): self._value(v) for k, v in value.items()}
        if kind != "JavaObject":
            return value
        return self._object(value)

    def _object(self, value: Any) -> Any:
        name = str(value.getClass().getSimpleName())
        if name in FROM_TEXT:
            return FROM_TEXT[name](str(value.toString()))
        if "ByteBuffer" in name:
            return bytes(self._jvm.org.apache.iceberg.util.ByteBuffers.toByteArray(value))
        if name == "GenericRecord":
            fields = [str(f.name()) for f in value.struct().fields()]
            return {n: self._value(value.getField(n)) for n in fields}
        raise TypeError(f"no reading for Java's {name}")


FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "LocalDate": date.fromisoformat,
    "LocalTime": time.fromisoformat,
    "LocalDateTime": datetime.fromisoformat,
    "OffsetDateTime": datetime.fromisoformat,
    "UUID": str,
}
