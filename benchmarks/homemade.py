"""topic -> table, the home-made ways: `from_json` + append, and dedup + MERGE INTO, both in foreachBatch.

What a Spark engineer writes without this project: an explicit schema, Spark's Kafka source, one statement per batch.
Run as `python -m benchmarks.homemade JOB.json`; one JSON line per commit goes to stderr, then what each batch read.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import Window, functions

from benchmarks.generate import FLATTENED_COLUMNS, VALUE_COLUMNS
from benchmarks.log_lines import say
from benchmarks.session import create_table, merge_properties, open_session, qualified, sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MODES = {"merge-mor": "merge-on-read", "merge-cow": "copy-on-write"}
_STOP = "benchmark: enough batches"


def main(job_file: str) -> None:
    """Run one home-made contender over the job's topic until its end or for `batches` batches."""
    job = json.loads(Path(job_file).read_text())
    spark = open_session(f"benchmark {job['contender']}", Path(job["warehouse"]))
    mode = _MODES.get(job["contender"])
    if not job["prefilled"]:
        create_table(spark, job["table"], mode is not None, merge_properties(mode) if mode else {})
    target = qualified(job["table"])
    if mode is None:
        run(read_flattened(spark, job), job, lambda batch: append(batch, target))
    else:
        keep = mode == "copy-on-write"
        run(read_envelopes(spark, job), job, lambda batch: merge(batch, target, keep))
    spark.stop()


def run(events: DataFrame, job: dict[str, Any], write: Any) -> None:
    """Start the query, write each batch, report each commit."""

    def each(batch: DataFrame, number: int) -> None:
        if job["batches"] is not None and number >= job["batches"]:
            raise RuntimeError(_STOP)
        started = time.monotonic()
        write(batch)
        say("batch committed", batch=number, seconds=round(time.monotonic() - started, 3))

    stream = events.writeStream.foreachBatch(each).option("checkpointLocation", job["checkpoint"])
    query = stream.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        if _STOP not in str(error):
            raise
    for progress in query.recentProgress:
        report_progress(json.loads(progress.json))


def report_progress(progress: dict[str, Any]) -> None:
    """Say which offsets a finished batch read; exact, unlike numInputRows of a batch that is read twice."""
    ends, events = {}, 0
    for source in progress["sources"]:
        start = _offsets(source["startOffset"])
        for key, end in _offsets(source["endOffset"]).items():
            ends[key], events = end, events + end - start.get(key, 0)
    if events:
        say("batch read", batch=progress["batchId"], events=events, offsets=ends)


def read_flattened(spark: SparkSession, job: dict[str, Any]) -> DataFrame:
    """Columns of flattened events by `from_json`."""
    schema = ", ".join(f"`{name}` {sql_type(name)}" for name in FLATTENED_COLUMNS)
    return kafka(spark, job).selectExpr(f"from_json(CAST(value AS STRING), '{schema}') AS r").select("r.*")


def read_envelopes(spark: SparkSession, job: dict[str, Any]) -> DataFrame:
    """Columns of envelopes by `from_json`, and the Kafka offset; a delete gets its key from `before`."""
    row = ", ".join(f"`{name}`: {sql_type(name)}" for name in VALUE_COLUMNS)
    schema = (
        f"before STRUCT<id: BIGINT>, after STRUCT<{row}>, op STRING, ts_ms BIGINT, "
        "source STRUCT<db: STRING, `table`: STRING, ts_ns: BIGINT>"
    )
    parsed = kafka(spark, job).selectExpr(f"from_json(CAST(value AS STRING), '{schema}') AS e", "offset")
    return parsed.selectExpr(
        "coalesce(e.after.id, e.before.id) AS id",
        *(f"e.after.`{name}`" for name in VALUE_COLUMNS[1:]),
        "if(e.op = 'd', 'true', 'false') AS __deleted",
        "e.op AS __op",
        "e.source.`table` AS __table",
        "e.source.ts_ns AS __source_ts_ns",
        "e.source.db AS __db",
        "e.ts_ms AS __ts_ms",
        "offset",
    )


def kafka(spark: SparkSession, job: dict[str, Any]) -> DataFrame:
    """The topic as a stream of at most `batch_events` records per batch."""
    options = {
        "kafka.bootstrap.servers": job["bootstrap"],
        "subscribe": job["topic"],
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(job["batch_events"]),
    }
    return spark.readStream.format("kafka").options(**options).load()


def append(batch: DataFrame, target: str) -> None:
    """One row per event."""
    batch.writeTo(target).append()


def merge(batch: DataFrame, target: str, keep: bool) -> None:
    """The newest event per key, merged; copy-on-write reads its source twice, so there the batch is kept."""
    newest_first = Window.partitionBy("id").orderBy(functions.desc("__source_ts_ns"), functions.desc("offset"))
    newest = batch.withColumn("place", functions.row_number().over(newest_first)).where("place = 1")
    changes = newest.drop("place", "offset")
    if keep:
        changes.persist()
    changes.createOrReplaceTempView("changes")
    batch.sparkSession.sql(
        f"MERGE INTO {target} t USING changes s ON t.id = s.id "
        "WHEN MATCHED AND s.__op = 'd' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED AND s.__op <> 'd' THEN INSERT *"
    )
    if keep:
        changes.unpersist()


def _offsets(text: str | dict[str, Any] | None) -> dict[str, int]:
    # PySpark hands over the JSON either as text or already parsed.
    parsed = json.loads(text) if isinstance(text, str) else text
    return {key: end for ends in (parsed or {}).values() for key, end in ends.items()}


if __name__ == "__main__":
    main(sys.argv[1])
