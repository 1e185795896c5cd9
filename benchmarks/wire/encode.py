"""a Parquet file of 13 columns -> envelopes in each format, counted and thrown away: what encoding costs the source.

A process of its own with Spark (`python -m benchmarks.wire.encode JOB`). No broker: publishing costs the same for each
format, and would hide the difference.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import attrs
import psutil
from pyspark.sql import DataFrame, SparkSession

from benchmarks.session import open_session
from benchmarks.wire.figures import AVRO, BLOCKS, JSON
from connector.source.destinations.kafka import to_kafka_records
from connector.source.envelope.column_records import JSON_SERIALIZERS, EventSerializers
from connector.source.envelope.event_format import EventFormat
from connector.source.envelope.json_values import configure_session
from connector.source.envelope.row_schema import describe_key
from serde.avro.emitted_schema import avro_schema
from serde.avro.serializer import AvroSerializer
from serde.emit.envelope import SourceInfo
from serde.emit.row_schema import Primitive, RowField, RowStruct
from serde.emit.type_mapping import HandlingModes

ROUNDS = 4
_ROWS_PER_EVENT = 5
"""Spark needs more rows than the decoders to be past what a job costs anyway."""

_COLUMNS = {
    "id": ("long", "id"),
    "customer": ("long", "id * 7919 % 1000003"),
    "quantity": ("int", "cast(id % 100 AS INT)"),
    "price": ("double", "id / 7"),
    "discount": ("double", "IF(id % 3 = 0, NULL, id / 1000)"),
    "amount": ("decimal", "cast(id AS DECIMAL(12, 2))"),
    "status": ("string", "concat('status ', id % 5)"),
    "note": ("string", "IF(id % 4 = 0, NULL, concat('note number ', id))"),
    "active": ("boolean", "id % 2 = 0"),
    "updated_at": ("timestamp", "cast(timestamp_micros(1700000000000000 + id * 1001) AS TIMESTAMP_NTZ)"),
    "day": ("date", "date_from_unix_date(cast(id % 20000 AS INT))"),
    "country": ("string", "substring('DEFRITESPL', 1 + 2 * cast(id % 5 AS INT), 2)"),
    "code": ("string", "hex(id)"),
}
_ORIGIN = SourceInfo("0.1", "p", "c", "db", "t", 1_700_000_000_000_000_000, "false", 5, 4, 2)


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Write the rows in every format, in turns; `figures` are rows per CPU second, the best of the rounds."""
    count = job["events"] * _ROWS_PER_EVENT
    with tempfile.TemporaryDirectory() as home:
        spark = open_session("encoding", Path(home))
        try:
            configure_session(spark)
            rows = _stored(spark, Path(home) / "rows", count)
            wires = _wires()
            best = dict.fromkeys(wires, float("inf"))
            for _ in range(ROUNDS):
                for name, wire in wires.items():
                    best[name] = min(best[name], _seconds(rows, *wire))
        finally:
            spark.stop()
    return {"figures": {name: count / seconds for name, seconds in best.items()}, "fault": None}


def _stored(spark: SparkSession, path: Path, count: int) -> DataFrame:
    columns = (f"{sql} AS {name}" for name, (_, sql) in _COLUMNS.items())
    spark.range(0, count, 1, 8).selectExpr(*columns).write.parquet(str(path))
    return spark.read.parquet(str(path)).selectExpr("'c' AS op", "struct(*) AS after")


def _wires() -> dict[str, tuple[EventFormat, EventSerializers]]:
    kinds = {
        name: Primitive(kind, 12, 2) if kind == "decimal" else Primitive(kind) for name, (kind, _) in _COLUMNS.items()
    }
    row = RowStruct(tuple(RowField(name, kind, name != "id") for name, kind in kinds.items()))
    with_blocks = EventFormat("p.db.t", row, describe_key(row, ("id",)), HandlingModes(), _ORIGIN)
    json_ = attrs.evolve(with_blocks, key_schemas=False, value_schemas=False)
    assert json_.key_schema is not None
    texts = [json.dumps(avro_schema(schema)) for schema in (json_.key_schema, json_.value_schema)]
    avro = EventSerializers(AvroSerializer(texts[0], 1), AvroSerializer(texts[1], 2, json_.constant))
    return {JSON: (json_, JSON_SERIALIZERS), BLOCKS: (with_blocks, JSON_SERIALIZERS), AVRO: (json_, avro)}


def _seconds(rows: DataFrame, wire: EventFormat, serializers: EventSerializers) -> float:
    """CPU seconds of all our processes."""
    changes = rows.selectExpr(
        "op", "IF(after.id < 0, after, NULL) AS before", "after", "cast(NULL AS BIGINT) AS row_id"
    )
    began = _cpu_s()
    to_kafka_records(changes, wire, serializers, reads=False).write.format("noop").mode("overwrite").save()
    return _cpu_s() - began


def _cpu_s() -> float:
    own = psutil.Process()
    return sum(sum(process.cpu_times()[:4]) for process in (own, *own.children(recursive=True)))


if __name__ == "__main__":
    body = json.loads(Path(sys.argv[1]).read_text())
    Path(body["result"]).write_text(json.dumps(main(body)))
