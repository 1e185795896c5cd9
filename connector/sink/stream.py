"""Kafka -> batches: Spark Structured Streaming with `foreachBatch`, from the position that Iceberg holds.

Spark's Kafka source finds the offsets that each batch spans, no more: its rows are never read. The batch's tasks fetch
the records themselves (`connector.kafka.fetch`), as columns, at a tenth of the cost.

The checkpoint directory is a scratch folder of this process: Spark's offset log in it tells each batch's exact range;
nothing is ever resumed from it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
import orjson
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from connector.errors import ConnectorError, FatalError, GapError
from connector.iceberg.position import Position, TopicPartition, flat, nested
from connector.settings import SinkSettings
from connector.settings.batch import Pace
from connector.sink.batch import Report
from connector.sink.cuts import Cuts
from connector.sink.records import Batch

Process = Callable[[Batch], Report]
_JAVA_ONLY = ("auto.offset.reset", "bootstrap.servers", "group.id", "key.deserializer", "value.deserializer")
_POLL_S = 0.2


@attrs.define(eq=False)
class Stream:
    """One run of the sink's stream: `start`, then `join` until it ends or `stop` is called."""

    spark: SparkSession
    settings: SinkSettings
    position: Position
    process: Process
    _busy: threading.Lock = attrs.field(factory=threading.Lock)
    _stopping: threading.Event = attrs.field(factory=threading.Event)
    _error: BaseException | None = None
    _at: dict[TopicPartition, int] = attrs.field(factory=dict)
    _batches: int = 0

    def run(self, *, once: bool) -> None:
        """Read until stopped; with `once`, up to the offsets that the topics have now.

        Raises:
            ConnectorError: what ended it.
        """
        scratch = Path(tempfile.mkdtemp(prefix="icebridge-"))
        self._at = dict(self.position.offsets)
        try:
            self._watch(self._query(scratch, once=once))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def stop(self) -> None:
        """Finish the batch at hand, then leave; safe to call from a signal handler."""
        self._stopping.set()

    def _query(self, scratch: Path, *, once: bool) -> StreamingQuery:
        pace = self.settings.batch.pace
        options = self._options() if once else {**self._options(), **waiting(pace)}
        frame = self.spark.readStream.format("kafka").options(**options).load()
        cuts = Cuts(self.settings.batch.max_bytes)
        writer = frame.writeStream.foreachBatch(lambda _, number: self._range(number, scratch, cuts))
        writer = writer.option("checkpointLocation", scratch.as_uri())
        interval = f"{pace.look_ms} milliseconds"
        return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=interval)).start()

    def _options(self) -> Mapping[str, str]:
        """Tell Spark's source where the cluster is; it only finds offsets, records are fetched by the tasks."""
        kafka = self.settings.kafka
        own = {f"kafka.{key}": value for key, value in kafka.consumer.items() if key not in _JAVA_ONLY}
        return {
            "kafka.isolation.level": "read_committed",
            **own,
            "kafka.bootstrap.servers": kafka.consumer.get("bootstrap.servers", kafka.bootstrap_servers),
            "failOnDataLoss": "true",
            "subscribePattern": kafka.topics_regex or "|".join(re.escape(topic) for topic in kafka.topics),
            "startingOffsets": orjson.dumps(nested(self.position.offsets)).decode(),
            "maxOffsetsPerTrigger": str(self.settings.batch.max_events),
        }

    def _range(self, number: int, scratch: Path, cuts: Cuts) -> None:
        """Bring in what Spark's trigger spans: one batch, or several where its events are large."""
        with self._busy:
            end = _end_offsets(scratch, number)
            stuck = False
            while not self._stopping.is_set():
                until = end if stuck else cuts.end(self._at, end)
                before = self._at
                report = self._batch(until)
                cuts.note(report.events, report.size_bytes)
                if until == end:
                    return
                # What is held back of a large transaction needs more than this to go on.
                stuck = self._at == before

    def _batch(self, end: dict[TopicPartition, int]) -> Report:
        try:
            report = self.process(Batch(self._batches, self._at, end))
        except BaseException as error:
            self._error = error
            raise
        self._batches += 1
        # A batch may end before what was there for it: the rest comes with the next one.
        self._at = {**self._at, **report.end}
        return report

    def _watch(self, query: StreamingQuery) -> None:
        try:
            while not query.awaitTermination(_POLL_S):
                if self._stopping.is_set():
                    with self._busy:
                        pass  # the batch at hand is through; one that comes now sees the flag and does nothing
                    query.stop()
                    return
        except StreamingQueryException as error:
            raise self._reason(error) from error

    def _reason(self, error: StreamingQueryException) -> BaseException:
        if isinstance(self._error, ConnectorError):
            return self._error
        text = str(error)
        if "data loss" in text.lower() or "KAFKA_DATA_LOSS" in text:
            return GapError(f"records are gone from Kafka before they were read: {_first_lines(text)}")
        return FatalError(f"the stream ended: {_first_lines(text)}")


def waiting(pace: Pace) -> dict[str, str]:
    """Give what Spark's Kafka source is told of when a batch begins."""
    if pace.events is None:
        return {}
    return {"minOffsetsPerTrigger": str(pace.events), "maxTriggerDelay": f"{pace.max_wait_ms}ms"}


def _end_offsets(scratch: Path, number: int) -> dict[TopicPartition, int]:
    """Read a batch's end offsets from Spark's offset log: a version line, a metadata line, then one line per source."""
    lines = (scratch / "offsets" / str(number)).read_text().splitlines()
    return flat(orjson.loads(lines[2]))


def _first_lines(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines()[:6])
