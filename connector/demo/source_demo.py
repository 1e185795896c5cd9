"""Iceberg tables changed by SQL -> the source -> Kafka -> the sink -> a second table, proven equal after every step.

One table is copy-on-write (format v2), the other merge-on-read (format v3, deletion vectors). A later run goes on with
the tables of the one before: more rows, one more column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import attrs
import orjson
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from connector.errors import FatalError
from connector.kafka.admin import KafkaAdmin
from connector.kafka.record_lookup import RecordReader
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import SinkSettings, SourceSettings, load
from connector.settings.source.settings import load_source
from connector.sink.factory import build_sink
from connector.source.factory import build_source

TABLES: Mapping[str, str] = {
    "orders": "'format-version'='2', 'write.delete.mode'='copy-on-write', 'write.update.mode'='copy-on-write', "
    "'write.merge.mode'='copy-on-write'",
    "stock": "'format-version'='3', 'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read', "
    "'write.merge.mode'='merge-on-read'",
}
_SOURCE = """\
# The demo's source: tables of namespace shop to topics lake.shop.*, as Debezium's envelopes.
connector.class=IcebergSource
name=icebridge-demo-source
bootstrap.servers={servers}
topic.prefix=lake
table.include.list={tables}
iceberg.catalog.warehouse={warehouse}
iceberg.catalog.table-namespace=demo
"""
_SINK = """\
# The demo's second sink: what the source published, into tables of namespace replica.
name=icebridge-demo-replica
bootstrap.servers={servers}
topics={topics}
debezium.sink.type=iceberg
debezium.sink.iceberg.warehouse={warehouse}
debezium.sink.iceberg.table-namespace=replica
debezium.sink.iceberg.upsert-keep-deletes=false
"""
REPORT = "please report it, with the demo's folder"


@attrs.frozen
class Step:
    """Something that happens to every table: `{t}` in the statement is the table."""

    name: str
    statement: str


# ruff: noqa: S608 - the statements are made of our own names and numbers


def steps(run: int) -> Iterator[Step]:
    """Return the steps of the run with this number, from 0."""
    first = run * 1000
    yield Step(
        "insert",
        f"INSERT INTO {{t}} (id, name, price, sold) SELECT id, concat('thing ', id), cast(id AS DECIMAL(9, 2)) / 4, "
        f"timestamp_micros(id * 86400000001) FROM range({first}, {first + 200})",
    )
    yield Step("update", "UPDATE {t} SET price = price + 1 WHERE id % 10 = 3")
    yield Step("delete", f"DELETE FROM {{t}} WHERE id % 7 = 0 AND id >= {first}")
    yield Step("new column", f"ALTER TABLE {{t}} ADD COLUMN note{run} STRING")
    yield Step(
        "merge",
        f"MERGE INTO {{t}} t USING (SELECT id FROM range({first + 190}, {first + 210})) s ON t.id = s.id "
        f"WHEN MATCHED THEN UPDATE SET note{run} = 'seen' "
        f"WHEN NOT MATCHED THEN INSERT (id, name, note{run}) VALUES (s.id, 'late', 'new')",
    )


def play_steps(console: Console, spark: SparkSession, home: Path, servers: str) -> None:
    """Run the steps, publish, replicate and compare after each.

    Raises:
        FatalError: a replica is not its source.
    """
    values = {"servers": servers, "warehouse": home / "warehouse", "tables": ",".join(f"shop.{t}" for t in TABLES)}
    values["topics"] = ",".join(f"lake.shop.{table}" for table in TABLES)
    paths = {name: home / f"{name}.properties" for name in ("lake-source", "lake-sink")}
    paths["lake-source"].write_text(_SOURCE.format(**values), encoding="utf-8")
    paths["lake-sink"].write_text(_SINK.format(**values), encoding="utf-8")
    source, sink = load_source([paths["lake-source"]]), load([paths["lake-sink"]])
    run = _tables(spark)
    console.print("[bold]tables of namespace shop[/], changed by SQL -> Kafka -> tables of namespace replica")
    tables = build_source(spark, source)
    for step in steps(run):
        before = _end_offsets(source)
        for table in TABLES:
            spark.sql(step.statement.replace("{t}", f"default.shop.{table}"))
        tables.run(once=True)
        _replicate(spark, sink)
        after = _end_offsets(source)
        for table in TABLES:
            count, new = _compare_tables(spark, table), _count_new(table, before, after)
            console.print(f"{step.name:<12}{table:<8}{new:>5} records, {count:>4} rows: replica and source are equal")
        for sample in _sample_event(source, before, after):
            # A terminal shows how the event begins; a file has all of it.
            fold = {"no_wrap": True, "overflow": "ellipsis"} if console.is_terminal else {"soft_wrap": True}
            console.print(sample, highlight=False, style="dim", **fold)


def _tables(spark: SparkSession) -> int:
    """Create the tables unless they are there; give the number of earlier runs, by the columns that they added."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS default.shop")
    for table, properties in TABLES.items():
        if not spark.catalog.tableExists(f"default.shop.{table}"):
            spark.sql(
                f"CREATE TABLE default.shop.{table} (id BIGINT NOT NULL, name STRING, price DECIMAL(9, 2), "
                f"sold TIMESTAMP) USING iceberg TBLPROPERTIES ({properties})"
            )
            spark.sql(f"ALTER TABLE default.shop.{table} SET IDENTIFIER FIELDS id")
    columns = spark.table(f"default.shop.{list(TABLES)[-1]}").columns
    return sum(column.startswith("note") for column in columns)


def _replicate(spark: SparkSession, sink: SinkSettings) -> None:
    """Let the sink read what is new."""
    with closing(build_sink(spark, sink)) as running:
        running.stream.run(once=True)


def _compare_tables(spark: SparkSession, table: str) -> int:
    """Return the number of rows of a table, once its replica holds the very same ones."""
    wanted = spark.table(f"default.shop.{table}")
    name = f"default.replica.lake_shop_{table}"
    replica = spark.table(name)
    # A column that was just added arrives with the first event that has it.
    columns = [column for column in wanted.columns if column in replica.columns]
    late = [column for column in wanted.columns if column not in replica.columns]
    if late and not wanted.dropna("all", subset=late).isEmpty():
        raise FatalError(f"the demo's replica {name} lacks {', '.join(late)}; {REPORT}")
    if _has_difference(wanted.select(columns), replica.select(columns)):
        raise FatalError(f"the demo's replica {name} is not equal to shop.{table}; {REPORT}")
    return int(wanted.count())


def _has_difference(left: DataFrame, right: DataFrame) -> bool:
    return not (left.exceptAll(right).isEmpty() and right.exceptAll(left).isEmpty())


def _end_offsets(source: SourceSettings) -> dict[TopicPartition, int]:
    cluster = KafkaAdmin(source.kafka)
    names = [source.outgoing.topic(f"shop.{table}") for table in TABLES]
    with_partitions = cluster.topics([name for name in names if name in cluster.names()])
    return cluster.fetch_end_offsets(
        [(t.name, partition) for t in with_partitions.values() for partition in range(t.partitions)]
    )


def _count_new(table: str, before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int]) -> int:
    topic = f"lake.shop.{table}"
    return sum(end - before.get(at, 0) for at, end in after.items() if at[0] == topic)


def _sample_event(
    source: SourceSettings, before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int]
) -> list[str]:
    """The first new event of a step, its payload as text."""
    at = next((at for at in sorted(after) if after[at] > before.get(at, 0)), None)
    if at is None:
        return []
    with RecordReader(source.kafka) as records:
        message = records.read_from({at: before.get(at, 0)}, 1)[at][0]
    document = orjson.loads(message.value() or b"null")
    payload = orjson.dumps((document or {}).get("payload")).decode()
    return [f"  {at[0]}-{at[1]} offset {message.offset()}: {payload}".replace("[", r"\[")]
