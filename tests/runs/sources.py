"""Tables changed by Spark SQL -> a source in this process -> records of its topics, as a consumer sees them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field, frozen
from pyspark.sql import SparkSession

from connector.runtime.monitoring.listeners import StepReport
from connector.settings import SourceSettings
from connector.settings.source.settings import load_source
from connector.source.factory import build_source
from tests.clients.lake import Lake
from tests.clients.topics import Topics
from tests.model.recordings import Record
from tests.runs.processes import catalog

Row = dict[str, Any]


@define
class StepLog:
    """A listener that keeps the reports of a source's steps."""

    steps: list[StepReport] = field(factory=list)

    def on_step(self, report: StepReport) -> None:
        """Keep a report."""
        self.steps.append(report)


@frozen
class SourceWorkspace:
    """A catalog of its own, tables in namespace `db`, and the properties of a source that reads them."""

    spark: SparkSession
    topics: Topics
    home: Path
    name: str
    extra: Mapping[str, str]

    def sql(self, *statements: str) -> None:
        """Run statements; `T.` stands for the namespace."""
        for statement in statements:
            self.spark.sql(statement.replace("T.", f"{self.name}.db."))

    def identify(self, table: str, *columns: str) -> None:
        """Set the identifier columns."""
        self.lake().java(table, "db").updateSchema().setIdentifierFields(list(columns)).commit()

    def lake(self) -> Lake:
        """The catalog in the shared session."""
        return Lake(self.spark, self.name, catalog(self.home))

    def rows(self, table: str) -> list[Row]:
        """The table's rows, by Spark."""
        return list(self.spark.table(f"{self.name}.db.{table}").toArrow().to_pylist())

    def properties(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The source's properties."""
        return {
            "connector.class": "IcebergSource",
            "name": self.name,
            "bootstrap.servers": self.topics.bootstrap_servers,
            "topic.prefix": self.name,
            "table.include.list": r"db\..*",
            "iceberg.catalog.catalog-name": self.name,
            **{f"iceberg.catalog.{key}": value for key, value in catalog(self.home).items()},
            "poll.interval.ms": "100",
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            **self.extra,
            **(extra or {}),
        }

    def file(self, extra: Mapping[str, str] | None = None) -> Path:
        """A properties file of the source."""
        path = self.home / f"{self.name}-{len(list(self.home.glob('*.properties')))}.properties"
        lines = (f"{key}={value}\n" for key, value in self.properties(extra).items())
        path.write_text("".join(lines).replace("\\", "\\\\"), encoding="utf-8")
        return path

    def settings(self, extra: Mapping[str, str] | None = None) -> SourceSettings:
        """The source's settings."""
        return load_source([self.file(extra)], environ={})

    def publish(self, extra: Mapping[str, str] | None = None) -> list[StepReport]:
        """Run the source up to the snapshots of now; the steps it took."""
        log = StepLog()
        build_source(self.spark, self.settings(extra), [log]).run(once=True)
        return log.steps

    def topic(self, table: str) -> str:
        """The topic of a table."""
        return f"{self.name}.db.{table}"

    def records(self, table: str) -> list[Record]:
        """The records of a table's topic, partition by partition."""
        return self.topics.read(self.topic(table))

    def events(self, table: str) -> list[Row]:
        """The envelopes of a table's topic (without schema blocks), tombstones left out."""
        return [payload(record.value) for record in self.records(table) if record.value is not None]


def make_source_workspace(
    spark: SparkSession, topics: Topics, home: Path, name: str, extra: Mapping[str, str]
) -> SourceWorkspace:
    """Make a catalog in `home` and give the source on it; extra properties are the source's."""
    (home / "warehouse").mkdir()
    made = SourceWorkspace(spark, topics, home, name, extra)
    made.lake()
    spark.sql(f"CREATE NAMESPACE {name}.db")
    return made


def payload(value: bytes | None) -> Row:
    """The payload of a key or value, with or without schema block."""
    document = json.loads(value or b"null")
    if isinstance(document, dict) and document.keys() == {"schema", "payload"}:
        document = document["payload"]
    found: Row = document
    return found


def replica(records: Sequence[Record]) -> dict[str, Row]:
    """What a consumer holds in the end: the last image of each key, by the key's text."""
    held: dict[str, Row] = {}
    for record in records:
        key = json.dumps(payload(record.key), sort_keys=True)
        event = None if record.value is None else payload(record.value)
        if event is None or event["op"] == "d":
            held.pop(key, None)
        else:
            held[key] = event["after"]
    return held


def in_order(records: Sequence[Record]) -> bool:
    """Whether in every partition the events' times never run backwards, however often steps were repeated."""
    latest: dict[int, int] = {}
    for record in records:
        if record.value is None:
            continue
        ts_ns = payload(record.value)["source"]["ts_ns"]
        if ts_ns < latest.get(record.partition, 0):
            return False
        latest[record.partition] = ts_ns
    return True
