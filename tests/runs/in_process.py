"""properties -> a run of the sink in the tests' own process and Spark session -> its reports, or what it ended with.

Some seconds cheaper than a process of its own, and its steps can be interrupted; broker, catalog and tables are real.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import define, field, frozen
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from connector.kafka.admin import KafkaAdmin
from connector.kafka.dlq.reader import DeadLetterRecord
from connector.runtime.monitoring.listeners import BatchReport
from connector.settings import SinkSettings, load
from connector.sink.factory import Sink, SinkObservers, build_sink
from connector.sink.replay import Replayer, ReplayReport
from tests.clients.lake import Lake
from tests.clients.topics import Topics
from tests.model.recordings import Record
from tests.runs.listeners import ReportListener
from tests.runs.processes import Workspace


@frozen
class InProcessSink:
    """Runs the sink of a workspace."""

    spark: SparkSession
    space: Workspace
    catalog: Mapping[str, str] | None = None
    """Iceberg's properties of another catalog than the workspace's own."""

    @property
    def lake(self) -> Lake:
        """The workspace's tables; also tells the session of their catalog."""
        return Lake(self.spark, self.space.name, self.catalog or self.space.catalog)

    def settings(self, extra: Mapping[str, str] | None = None) -> SinkSettings:
        """The sink's settings, `extra` on top."""
        return load([self.space.file(extra or {})])

    def sink(
        self, extra: Mapping[str, str] | None = None, told: Callable[[BatchReport], object] = lambda _: None
    ) -> Sink:
        """A sink at its starting position, to be closed; `told` gets each batch's report."""
        assert self.lake

        # Iceberg's commits call back into Python; a sink that is not run as a stream needs that too.
        ensure_callback_server_started(self.spark.sparkContext._gateway)
        return build_sink(self.spark, self.settings(extra), SinkObservers((ReportListener(told),)))

    def run(self, extra: Mapping[str, str] | None = None) -> list[BatchReport]:
        """Run the sink once, up to the offsets at its start; raises what ended it."""
        reports: list[BatchReport] = []
        sink = self.sink(extra, reports.append)
        try:
            sink.stream.run(once=True)
        finally:
            sink.close()
        return reports

    def take_in(self, topics: Topics, log: Sequence[Record], ends: Iterable[int]) -> None:
        """Send the records of new topics up to one end after the other, and run the sink after each."""
        done = 0
        for end in ends:
            topics.replay(log[done:end], create=not done)
            self.run()
            done = end

    def replay(
        self, letters: Sequence[DeadLetterRecord], known: Sequence[DeadLetterRecord], *, execute: bool
    ) -> ReplayReport:
        """Replay repaired dead letters of those that are `known`, by a sink of its own; their marks are not written."""
        settings, sink = self.settings(), self.sink()
        try:
            replayer = Replayer(settings, sink.destination, sink.batches, KafkaAdmin(settings.kafka), list(known))
            return replayer.replay(list(letters), execute=execute)
        finally:
            sink.close()


@define(eq=False)
class LazySink:
    """A sink that starts when it is first asked for, and anew after it was closed or lost."""

    inside: InProcessSink
    _sink: Sink | None = field(default=None)

    @property
    def now(self) -> Sink:
        """The sink, started where it is not running."""
        if self._sink is None:
            self._sink = self.inside.sink()
        return self._sink

    def close(self) -> None:
        """Stop as a sink does that is told to."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def lose(self) -> None:
        """Forget a sink that died."""
        self._sink = None


def run_until(sink: Sink, done: Callable[[], bool]) -> None:
    """Run a sink's stream beside the test until the condition holds, then stop it; raises what ended it."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            sink.stream.run(once=False)
        except Exception as error:  # noqa: BLE001 - raised by the test
            errors.append(error)

    beside = threading.Thread(target=run)
    beside.start()
    deadline = time.monotonic() + 60
    while not done() and beside.is_alive() and time.monotonic() < deadline:
        time.sleep(0.05)
    sink.stream.stop()
    beside.join(60)
    sink.close()
    if errors:
        raise errors[0]
    assert done()
