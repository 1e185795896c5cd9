"""A source that writes documents in this process, and whether its indexes are its tables."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from attrs import frozen
from pyspark.sql import SparkSession

from connector.iceberg.java import jvm, to_string_array
from connector.iceberg.read.table_reader import TableReader, release_reads
from connector.runtime.monitoring.listeners import StepReport
from connector.settings import SourceSettings
from connector.settings.source.settings import load_source
from connector.source.changes.snapshot_diff import read_changes
from connector.source.factory import build_source, build_tables
from connector.source.snapshots.snapshot_info import SnapshotInfo
from connector.source.snapshots.table_history import parse_ancestor
from connector.source.table_capture import TableCapture
from tests.clients.search import Search
from tests.histories.source_tables import Subject, use_catalog
from tests.runs.sources import StepLog

Row = dict[str, Any]


@frozen
class Direct:
    """A source with no Kafka behind it, the catalog in `home` that it reads, and the node that it writes to."""

    spark: SparkSession
    home: Path
    search: Search
    catalog: str

    @staticmethod
    def open(spark: SparkSession, home: Path, search: Search, catalog: str) -> Direct:
        """A catalog of this name in `home`, without tables."""
        use_catalog(spark, home, catalog)
        return Direct(spark, home, search, catalog)

    def create(self, name: str, columns: str, *, keys: bool = True, version: int = 2) -> str:
        """Make a table, identified by `id` or by nothing; its name with the namespace."""
        table = f"db.{name}"
        properties = f"TBLPROPERTIES ('format-version'='{version}')"
        self.spark.sql(f"CREATE TABLE {self.catalog}.{table} ({columns}) USING iceberg {properties}")
        if keys:
            java = jvm(self.spark).org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
                self.spark._jsparkSession, f"{self.catalog}.{table}"
            )
            java.updateSchema().setIdentifierFields(to_string_array(self.spark, ("id",))).commit()
        return table

    def file(self, name: str, tables: Sequence[str], extra: dict[str, str] | None = None) -> Path:
        """A properties file of a source of some tables."""
        values = {
            "connector.class": "IcebergSource",
            "name": name,
            "topic.prefix": "lake",
            "table.include.list": ",".join(tables),
            "debezium.sink.type": "opensearch",
            "connection.url": self.search.url,
            "iceberg.catalog.catalog-name": self.catalog,
            "iceberg.catalog.type": "hadoop",
            "iceberg.catalog.warehouse": str(self.home),
            **(extra or {}),
        }
        path = self.home / f"{name}-{len(list(self.home.glob('*.properties')))}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")
        return path

    def settings(self, table: str, extra: dict[str, str] | None = None) -> SourceSettings:
        """The settings of a source of one table."""
        return load_source([self.file(table.replace(".", "-"), [table], extra)], environ={})

    def run(self, table: str, extra: dict[str, str] | None = None) -> list[StepReport]:
        """Bring the index to the table's snapshot of now; the steps it took."""
        log = StepLog()
        build_source(self.spark, self.settings(table, extra), [log]).run(once=True)
        return log.steps

    def feed(self, table: str, extra: dict[str, str] | None = None) -> TableCapture:
        """The way of one table, to be driven by hand."""
        *namespace, name = table.split(".")
        opened = build_tables(self.spark, self.settings(table, extra)).open(tuple(namespace), name)
        assert opened is not None
        return opened

    def differences(self, subject: Subject) -> list[str]:
        """Where the index is not the table: ids, and columns under the fields that they are kept in."""
        index = index_of(subject.short)
        mapping = next(iter(self.search.ask("GET", f"{index}/_mapping").values()))["mappings"]
        names = json.loads(mapping["_meta"]["icebridge"]["names"])
        # A column that was added since the last snapshot has no field yet, and no row has a value for it.
        columns = subject.table().java.schema().columns()
        fields = {c.name(): names.get(str(c.fieldId()), c.name()) for c in columns}
        rows: dict[str, list[Row]] = {}
        for row in self.spark.table(subject.name).collect():
            made = {fields[name]: _expected(value) for name, value in row.asDict().items()}
            rows.setdefault(str(row["id"]), []).append(made)
        found = self.search.documents(index)
        out = [f"id {i} is missing" for i in sorted(rows.keys() - found.keys())]
        out += [f"id {i} must be gone" for i in sorted(found.keys() - rows.keys())]
        for i in sorted(rows.keys() & found.keys()):
            document = {name: found[i].get(name) for name in fields.values()}
            if document not in rows[i]:
                out.append(f"id {i}: {document} is none of {rows[i]}")
        return out

    def again(self, subject: Subject, random: Random) -> None:
        """Send every snapshot's changes once more, in a random order, with the versions that they had."""
        access = self.feed(subject.short).access
        taken: list[tuple[SnapshotInfo, int]] = []
        before = None
        for found in access.snapshots.ancestors():
            at = SnapshotInfo.of(parse_ancestor(found), before)
            before = at.ts_ns
            if found.get("summary", {}).get("operation") != "replace":
                taken.append((at, found["snapshot-id"]))
        random.shuffle(taken)
        for at, snapshot_id in taken:
            described = access.describe(at, "false")
            reader = TableReader(self.spark, access.table, described.schema)
            access.publisher.publish(read_changes(reader, snapshot_id, described.key), described)
            release_reads(self.spark, access.table)


def index_of(table: str) -> str:
    """The index of a table."""
    return f"lake.{table}"


def _expected(value: Any) -> Any:
    """A value as a document has it."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return {key: _expected(item) for key, item in value.items()}
    if hasattr(value, "asDict"):
        return {key: _expected(item) for key, item in value.asDict().items()}
    return [_expected(item) for item in value] if isinstance(value, list) else value
