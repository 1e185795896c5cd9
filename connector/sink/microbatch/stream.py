"""Kafka -> batches: Spark Structured Streaming with `foreachBatch`, from the position that Iceberg holds.

Spark's Kafka source finds the offsets that each batch spans, no more: its rows are never read. The batch's tasks fetch
the records themselves (`kafka.consumer`), as columns, at a tenth of the cost.

Which topics are read is decided here, by whole names, and Spark is told topic-partitions: a query for each set of
them. A look beside the batches finds what appears meanwhile; then the next query begins where the last one came to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path

import attrs
import structlog
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from connector.errors import CommitUnknown, ConnectorError, FatalError, GapError, RetriableError
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.java import gateway_of
from connector.kafka.admin import KafkaAdmin
from connector.runtime.jvm.callback_connections import callback_connections
from connector.runtime.lifecycle import start_call, start_thread
from connector.runtime.monitoring.listeners import BatchReport
from connector.runtime.retry import call_with_retries
from connector.runtime.scratch_folders import scratch_folder
from connector.runtime.spark.local_paths import name_locally
from connector.runtime.stop_flag import StopFlag
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import SinkSettings
from connector.sink.microbatch.background_query import BackgroundQuery
from connector.sink.microbatch.partition_discovery import PartitionDiscovery
from connector.sink.microbatch.size_estimates import ByteLimit
from connector.sink.microbatch.spark_source import BatchFunction, read_end_offsets, source_options, trigger_options
from connector.sink.microbatch.start_offsets import keep_ends_behind
from connector.sink.model.micro_batch import MicroBatch

ProcessBatch = Callable[[MicroBatch], BatchReport]
_POLL_S = 0.2
_STOP_S = 5.0
"""So long a query's end is waited for. One that asks brokers which are silent ends a minute later: it does no harm."""


@attrs.define(eq=False)
class Stream:
    """One run of the sink's stream: `run` returns when it ends or `stop` is called; `beat` is called meanwhile.

    `await_warmup` waits for so long, and tells whether the first batch may begin: what it finds warm is warmed up
    beside the start of the query.
    `batches` is the number of the next one, so that the runs of a process count on. `readable` is up to where topics
    could be read when the position was found: in front of transactions that were open.
    """

    spark: SparkSession
    settings: SinkSettings
    position: KafkaOffsets
    process: ProcessBatch
    cluster: KafkaAdmin
    byte_limit: ByteLimit
    overdue: Callable[[], bool] = lambda: False
    hold: Callable[[], str | None] = lambda: None
    beat: Callable[[], None] = lambda: None
    await_warmup: Callable[[float], bool] = lambda _: True
    stop_waiting: Callable[[Mapping[TopicPartition, int]], None] = lambda _: None
    batches: int = 0
    readable: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    _busy: threading.Lock = attrs.field(factory=threading.Lock)
    _stopping: StopFlag = attrs.field(factory=StopFlag)
    _leaving: threading.Event = attrs.field(factory=threading.Event)
    _function: BatchFunction | None = None
    _error: BaseException | None = None
    _at: dict[TopicPartition, int] = attrs.field(factory=dict)
    _seen: dict[TopicPartition, int] = attrs.field(factory=dict)
    _discovery: PartitionDiscovery = attrs.field(
        init=False,
        default=attrs.Factory(lambda self: PartitionDiscovery(self.cluster, self.position), takes_self=True),
    )

    def run(self, *, once: bool) -> None:
        """Read until stopped; with `once`, up to the offsets that the topics have now.

        Raises:
            ConnectorError: what ended it.
        """
        self._at, began_ms = dict(self.position.offsets), time.time_ns() // 1_000_000
        while self._run_until_growth(once=once):
            pass
        if once and not self._stopping.is_set():
            self._bring_in_old(began_ms)

    def stop(self) -> None:
        """Finish the current batch, then leave; safe to call from a signal handler."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def _run_until_growth(self, *, once: bool) -> bool:
        """Run a query over the topic-partitions that are known; tell whether there is to be another one."""
        self._leaving = threading.Event()
        with scratch_folder() as scratch:
            try:
                fresh = self._watch(self._query(scratch, once=once), once=once)
            finally:
                if self._function is not None:
                    self._function.release()
        self._at = {**(fresh or {}), **self._at}
        return fresh is None or bool(fresh)

    def _query(self, scratch: Path, *, once: bool) -> StreamingQuery:
        pace, leaving = self.settings.batch.pace, self._leaving
        options = self._options() if once else {**self._options(), **trigger_options(pace)}
        frame = self.spark.readStream.format("kafka").options(**options).load()
        connections = callback_connections(gateway_of(self.spark))
        self._function = BatchFunction(lambda number: self._range(number, scratch, leaving), connections)
        writer = frame.writeStream.foreachBatch(self._function)
        writer = writer.option("checkpointLocation", name_locally(scratch))
        interval = f"{pace.look_ms} milliseconds"
        return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=interval)).start()

    def _options(self) -> dict[str, str]:
        return source_options(self.settings, self._at, {**self._at, **self._find_held()})

    def _find_held(self) -> dict[TopicPartition, int]:
        """Return the ends that we still stand behind: Spark takes what it may not read yet for lost."""
        start = self.position.offsets
        return {at: end for at, end in self.readable.items() if end < start.get(at, end) == self._at.get(at)}

    def _range(self, number: int, scratch: Path, leaving: threading.Event) -> None:
        """Bring in what Spark's trigger spans: one batch, or several where its events are large."""
        while not self.await_warmup(_POLL_S):
            if self._stopping.is_set() or leaving.is_set():
                return
        with self._busy:
            if leaving.is_set():
                return
            self._seen = keep_ends_behind(self._at, read_end_offsets(scratch, number))
            self._bring_in(self._seen, lambda: self._may_begin(leaving))

    def _bring_in(self, end: dict[TopicPartition, int], may_begin: Callable[[], bool]) -> None:
        stuck = False
        while may_begin():
            until = end if stuck else self.byte_limit.end(self._at, end)
            before = self._at
            report = self._batch(until)
            self.byte_limit.note(report.metrics.events, report.metrics.size_bytes)
            if until == end:
                return
            # What is held back of a large transaction needs more than this to continue.
            stuck = self._at == before

    def _may_begin(self, leaving: threading.Event) -> bool:
        """Wait as long as the destination holds batches up; tell whether the run continues."""
        held, log = False, structlog.get_logger()
        while not self._stopping.is_set() and not leaving.is_set():
            reason = self.hold()
            if reason is None:
                if held:
                    log.info("the next batch begins")
                return True
            if not held:
                log.warning("the next batch waits until its tables are maintained", reason=reason)
            held = True
            self._stopping.wait(_POLL_S)
        return False

    def _batch(self, end: dict[TopicPartition, int]) -> BatchReport:
        try:
            report = self.process(MicroBatch(self.batches, self._at, end))
        except BaseException as error:
            self._error = error
            raise
        self.batches += 1
        # A batch may end before what was there for it: the rest comes with the next one.
        self._at = {**self._at, **report.end}
        return report

    def _watch(self, query: StreamingQuery, *, once: bool) -> dict[TopicPartition, int] | None:
        """Wait for the query's end, or for more to read; gives where that begins, nothing when the run is over.

        None: the query gave up brokers that were away, and that are back.
        """
        growth = BackgroundQuery(lambda: self._discovery.find_new(self._at))
        try:
            while not query.awaitTermination(_POLL_S):
                self.beat()
                if self._stopping.is_set():
                    self._stop_query(query)
                    if self._error is not None:
                        self._leave(str(self._error))
                    return {}
                if not once:
                    self._let_through()
                    fresh = growth.poll()
                    if fresh:
                        self._stop_query(query)
                        return fresh
        except StreamingQueryException as error:
            if not self._stopping.is_set():
                reason = self._reason(error)
                if self._error is not None or not isinstance(reason, RetriableError):
                    raise reason from error
                return self._await_brokers(str(reason))
            self._leave(str(error))
        except (Py4JError, OSError):
            raise  # a JVM that is gone has no query to stop
        except BaseException:
            # Whatever it is: who lets go of the run next may not do so in the midst of a batch.
            self._stop_query(query)
            raise
        return {}

    def _await_brokers(self, reason: str) -> dict[TopicPartition, int] | None:
        """Wait for brokers that are away; gives what `_watch` gives then, or when a stop is asked for.

        Spark's query ends after three tries of its own, which is minutes, where no batch is under way.

        Raises:
            TimeOver: they stayed away for `errors.retry.timeout`.
        """

        def ask() -> None:
            if not self._stopping.is_set():
                self._discovery.check_topics(self._at)

        structlog.get_logger().info("Spark's query ended; another one begins once the brokers answer", reason=reason)
        asked = start_call(lambda: call_with_retries(ask, self.settings.errors), "brokers")
        while not self._stopping.is_set():
            self.beat()
            if asked in wait([asked], _POLL_S).done:
                asked.result()
                return {} if self._stopping.is_set() else None
        return {}

    def _leave(self, reason: str) -> None:
        """Leave as asked, though the current batch was not through: what was committed of it is left out next time.

        Who stops us may have stopped Spark's workers too, and nobody waits for brokers or a catalog that are away.

        Raises:
            GapError, FatalError: what ended the batch needs a person, whoever asked for the stop.
        """
        if isinstance(self._error, ConnectorError) and not isinstance(self._error, RetriableError | CommitUnknown):
            raise self._error
        note = "stopped before the current batch was through; it comes again at the next start"
        structlog.get_logger().warning(note, reason=_first_lines(reason))

    def _let_through(self) -> None:
        """Bring in what was held back for long enough: Spark has no batch for topics that are quiet."""
        if not self.overdue() or not self._busy.acquire(blocking=False):
            return
        try:
            # What holds batches up looks at tables, and may change them: never while a batch does.
            if self.hold() is None and self._at != self._seen:
                with self._beating():
                    self._bring_in(self._seen, self._may_go_on)
        except BaseException:
            self._leaving.set()  # before another batch can begin
            raise
        finally:
            self._busy.release()

    @contextmanager
    def _beating(self) -> Iterator[None]:
        """Have the loop move for those who look while its own thread does what may take minutes."""
        through = threading.Event()

        def beat() -> None:
            while not through.wait(_POLL_S):
                self.beat()

        beating = start_thread(beat, "beat")
        try:
            yield
        finally:
            through.set()
            beating.join()

    def _may_go_on(self) -> bool:
        """Tell whether the run continues. In the thread that has tables maintained: it waits for nothing."""
        self.beat()
        return not self._stopping.is_set()

    def _bring_in_old(self, began_ms: int) -> None:
        """Bring in what is held back at the end of a run with `once`, if it has been in Kafka for long enough.

        The next such run would hold it back again: how long a process has waited says nothing then, but the times of
        the records do. Counted until the run began: what came since is not read in it, nor the rest of a transaction.
        """
        held = sorted(at for at, end in self._seen.items() if self._at.get(at, end) < end)
        if not held:
            return
        until_ms = began_ms - self.settings.kafka.transactions.wait_ms
        recent = call_with_retries(lambda: self.cluster.fetch_offsets_from_time(held, until_ms), self.settings.errors)
        if any(self._at[at] < recent.get(at, self._seen[at]) for at in held):
            self.stop_waiting({at: recent.get(at, self._seen[at]) for at in held})
            self._batch(self._seen)

    def _stop_query(self, query: StreamingQuery) -> None:
        self._leaving.set()
        with self._beating(), self._busy:
            pass  # the current batch is through; one that comes now sees the flag and does nothing
        stopping = start_call(query.stop, "stop")
        wait([stopping], _STOP_S)
        if stopping.done():
            stopping.result()
        else:
            structlog.get_logger().info("Spark still waits for the brokers: its query ends in the background")

    def _reason(self, error: StreamingQueryException) -> BaseException:
        if isinstance(self._error, ConnectorError):
            return self._error
        text, is_away = str(error), self._discovery.is_unanswered
        try:
            self._discovery.check_topics(self._at)
        except GapError as gone:
            return gone
        except ConnectorError as unknown:
            is_away = is_away or isinstance(unknown, RetriableError)
            structlog.get_logger().debug("topics cannot be looked at", reason=str(unknown))
        if "data loss" in text.lower() or "KAFKA_DATA_LOSS" in text:
            return GapError(
                f"records are gone from Kafka before they were read: {_first_lines(text)}; see `icebridge offsets "
                "show`, and `icebridge offsets reset` to start again from what is there"
            )
        if is_away and self._error is None:
            return RetriableError(f"the brokers do not answer: {_first_lines(text)}")
        # Spark's own words leave out why a batch failed where Java has no message for it.
        why = text if self._error is None else f"{type(self._error).__name__}: {self._error}"
        return FatalError(f"the stream ended: {_first_lines(why)}; start again, or report it with the log")


def _first_lines(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines()[:6])
