"""The stream's loop beside Spark's query: what it asks the brokers, and what it waits for."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import attrs
import orjson
import pytest
from attrs import define, field
from pyspark.errors import StreamingQueryException
from structlog.testing import capture_logs

from connector.errors import CommitUnknown, FatalError, GapError, RetriableError
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.kafka.admin import TopicInfo
from connector.runtime.lifecycle import Lifecycle
from connector.runtime.monitoring.listeners import BatchReport
from connector.settings import KafkaSettings, SinkSettings, load
from connector.sink import runner
from connector.sink.microbatch.background_query import BackgroundQuery
from connector.sink.microbatch.cluster import NoTopics
from connector.sink.microbatch.partition_discovery import PartitionDiscovery
from connector.sink.microbatch.size_estimates import UNSEEN_EVENT_BYTES, ByteLimit
from connector.sink.microbatch.start_offsets import ClusterState
from connector.sink.microbatch.stream import Stream
from connector.sink.model.micro_batch import MicroBatch


@define
class Query:
    """A query that has nothing to do until it is stopped."""

    stopped: threading.Event = field(factory=threading.Event)

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 - Spark's name
        return self.stopped.wait(min(timeout, 0.01))

    def stop(self) -> None:
        self.stopped.set()


@define
class SilentCluster:
    """Brokers that do not answer before they are let go."""

    asked: threading.Event = field(factory=threading.Event)
    released: threading.Event = field(factory=threading.Event)

    def select_partitions(self) -> set[tuple[str, int]]:
        self.asked.set()
        assert self.released.wait(60)
        return {("t", 0)}

    def fetch_beginning_offsets(self, at: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(at, 7)


def test_a_stop_does_not_wait_for_brokers_that_are_away() -> None:
    """A pause, or a signal, ends the run while the brokers are still waited for, and the loop is seen to move."""
    cluster, query, beats = SilentCluster(), Query(), list[float]()
    stream = Stream(
        cast("Any", None),
        cast("Any", None),
        KafkaOffsets(),
        cast("Any", None),
        cast("Any", cluster),
        cast("Any", None),
        beat=lambda: beats.append(time.monotonic()),
    )
    watching = threading.Thread(target=stream._watch, args=(query,), kwargs={"once": False}, daemon=True)
    watching.start()
    assert cluster.asked.wait(20)
    before, end = len(beats), time.monotonic() + 20
    while len(beats) < before + 3:
        assert time.monotonic() < end
        time.sleep(0.005)
    stream.stop()
    watching.join(20)
    assert not watching.is_alive()
    assert query.stopped.is_set()
    cluster.released.set()


@pytest.mark.parametrize("waits", ["for its last batch", "for a batch of its own"])
def test_a_loop_that_waits_for_a_batch_is_alive(waits: str) -> None:
    """While a stop waits for a long batch, or one that was held back takes long, a probe sees that the loop moves."""
    beats, through, is_alive = list[int](), threading.Event(), list[bool]()

    def process(batch: MicroBatch) -> BatchReport:
        before, end = len(beats), time.monotonic() + 5
        while len(beats) < before + 3 and time.monotonic() < end:
            time.sleep(0.01)
        is_alive.append(len(beats) >= before + 3)
        return BatchReport(0, 0.0, batch.end)

    none, query = cast("Any", None), cast("Any", Query())
    limit = ByteLimit(1 << 30)
    stream = Stream(none, none, KafkaOffsets(), process, none, limit, lambda: True, beat=lambda: beats.append(0))
    stream._at, stream._seen = {("t", 0): 0}, {("t", 0): 1}

    def batch() -> None:
        with stream._busy:
            through.set()
            stream._batch(stream._seen)

    if waits == "for its last batch":
        threading.Thread(target=batch, daemon=True).start()
        assert through.wait(20)
        stream._stop_query(query)
    else:
        stream._let_through()
    assert is_alive == [True]


def test_brokers_that_are_away_are_told_of_once() -> None:
    """Whoever watches the log learns that they do not answer, and that they do again, however often they were asked."""

    @define
    class Away:
        failures: int = 3

        def select_partitions(self) -> set[tuple[str, int]]:
            self.failures -= 1
            if self.failures >= 0:
                raise RetriableError(f"try {self.failures}")
            return set()

        def fetch_beginning_offsets(self, _: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
            return {}

    discovery = PartitionDiscovery(cast("Any", Away()), KafkaOffsets())
    with capture_logs() as told:
        for _ in range(6):
            assert discovery.find_new({}) == {}
    assert [(line["log_level"], line.get("reason")) for line in told] == [("warning", "try 2"), ("info", None)]


def test_a_batch_ends_no_earlier_than_it_begins(tmp_path: Path) -> None:
    """Spark's end is in front of an open transaction, of which more may have been read: that part is left as it is."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"t":{"0":5,"1":9}}\n')
    batches = list[tuple[Any, Any]]()

    def process(batch: MicroBatch) -> BatchReport:
        batches.append((batch.start, batch.end))
        return BatchReport(0, 0.0, batch.end)

    limit = ByteLimit(1 << 30)
    stream = Stream(cast("Any", None), cast("Any", None), KafkaOffsets(), process, cast("Any", None), limit)
    stream._at = {("t", 0): 8, ("t", 1): 7}
    stream._range(0, tmp_path, threading.Event())
    assert batches == [({("t", 0): 8, ("t", 1): 7}, {("t", 0): 8, ("t", 1): 9})]
    assert stream._at == {("t", 0): 8, ("t", 1): 9}


def test_what_was_held_back_comes_in_batches_of_the_usual_size() -> None:
    """Of a topic that has grown it may be far more than a batch has bytes for; and it waits as others do where tables
    must be maintained first, which the same thread has done meanwhile.
    """
    at, ends, beats, held = ("t", 0), list[int](), list[int](), ["maintained first"]

    def process(batch: MicroBatch) -> BatchReport:
        ends.append(batch.end[at])
        return BatchReport(0, 0.0, batch.end)

    stream = Stream(
        cast("Any", None),
        cast("Any", None),
        KafkaOffsets(),
        process,
        cast("Any", None),
        ByteLimit(5 * UNSEEN_EVENT_BYTES),
        overdue=lambda: True,
        hold=lambda: next(iter(held), None),
        beat=lambda: beats.append(0),
    )
    stream._at, stream._seen = {at: 0}, {at: 12}
    stream._let_through()
    assert ends == []
    held.clear()
    stream._let_through()
    assert (ends, len(beats)) == ([5, 10, 12], 3)
    stream.stop()
    stream._seen = {at: 20}
    stream._let_through()
    assert len(ends) == 3


def test_nobody_looks_at_tables_while_a_batch_is_under_way() -> None:
    """Not even for what was held back for long enough: back-pressure reads tables again, and expires snapshots."""
    none, looks = cast("Any", None), list[int]()

    def hold() -> str | None:
        looks.append(1)
        return "maintained first"

    stream = Stream(none, none, KafkaOffsets(), none, none, none, overdue=lambda: True, hold=hold)
    with stream._busy:
        stream._let_through()
    assert not looks
    stream._let_through()
    assert looks
    assert not stream._busy.locked()


def test_spark_begins_where_it_can_read(tmp_path: Path) -> None:
    """It takes the end in front of an open transaction for lost records where it is to begin behind it; once more has
    been read, it begins there."""
    at, other, third = ("t", 0), ("t", 1), ("t", 2)
    settings, none = _sink_settings(tmp_path), cast("Any", None)
    stream = Stream(none, settings, KafkaOffsets("c", {}, {at: 8, other: 8, third: 8}), none, none, none)
    stream.readable = {at: 5, other: 5, third: 9}
    stream._at = {at: 8, other: 10, third: 8}
    assert orjson.loads(stream._options()["startingOffsets"]) == {"t": {"0": 5, "1": 10, "2": 8}}


@define
class Outage:
    """Brokers that are away for so many questions, with a query that gives them up."""

    left: int
    asked: threading.Event = field(factory=threading.Event)

    def topics(self, names: list[str]) -> dict[str, TopicInfo]:
        self.asked.set()
        self.left -= 1
        if self.left >= 0:
            raise RetriableError(f"describing topics: try {self.left}")
        return {name: TopicInfo(name, "id", 1) for name in names}

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 - Spark's name
        raise StreamingQueryException("[STREAM_FAILED] Timed out waiting for a node assignment. SQLSTATE: XXKST")


def _outage_stream(outage: Outage, tmp_path: Path, timeout_ms: int) -> Stream:
    settings, none = _sink_settings(tmp_path), cast("Any", None)
    patient = attrs.evolve(settings, errors=attrs.evolve(settings.errors, retry_timeout_ms=timeout_ms))
    stream = Stream(none, patient, KafkaOffsets("c", {"t": "id"}), none, cast("Any", outage), none)
    stream._at = {("t", 0): 5}
    return stream


def test_brokers_that_spark_gave_up_are_waited_for(tmp_path: Path) -> None:
    """Spark's query ends after three tries where there is nothing to read; then comes another query, not the end."""
    outage = Outage(left=2)
    assert _outage_stream(outage, tmp_path, -1)._watch(cast("Any", outage), once=False) is None
    assert outage.left == -1


def test_brokers_that_spark_gave_up_are_waited_for_no_longer_than_others(tmp_path: Path) -> None:
    """The error says what the brokers did not answer, and is nothing to report."""
    outage = Outage(left=9)
    with pytest.raises(RetriableError, match="describing topics: try"):
        _outage_stream(outage, tmp_path, 0)._watch(cast("Any", outage), once=False)


def test_a_stop_ends_the_wait_for_brokers_that_spark_gave_up(tmp_path: Path) -> None:
    """A run that waits for nothing else is over."""
    outage, found = Outage(left=10**9), list[Any]()
    stream = _outage_stream(outage, tmp_path, -1)
    watching = threading.Thread(target=lambda: found.append(stream._watch(cast("Any", outage), once=False)))
    watching.start()
    assert outage.asked.wait(20)
    stream.stop()
    watching.join(20)
    assert found == [{}]


def test_what_ends_a_query_beside_brokers_that_answer_ends_the_run(tmp_path: Path) -> None:
    """Another query would end by it too."""
    outage = Outage(left=0)
    stream = _outage_stream(outage, tmp_path, -1)
    stream._discovery._unanswered = True
    assert stream._watch(cast("Any", outage), once=False) is None
    with pytest.raises(FatalError, match=r"the stream ended: .*node assignment"):
        stream._watch(cast("Any", outage), once=False)


def test_a_stream_that_ends_names_the_error_of_its_batch() -> None:
    """What ended a batch is told as it was raised, not as Spark wraps it, which may leave the reason out."""

    @define
    class There:
        def topics(self, _: list[str]) -> dict[str, str]:
            return {}

    @define
    class Failed(Query):
        def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 - Spark's names
            raise StreamingQueryException("[STREAM_FAILED] Reason:  SQLSTATE: 39000")

    stream = Stream(
        cast("Any", None), cast("Any", None), KafkaOffsets(), lambda _: _fail(), cast("Any", There()), cast("Any", None)
    )
    with pytest.raises(TimeoutError):
        stream._batch({})
    with pytest.raises(FatalError, match="the stream ended: TimeoutError: nobody answered"):
        stream._watch(cast("Any", Failed()), once=True)


def _fail() -> Any:
    raise TimeoutError("nobody answered")


def _stop_within_a_batch(error: Exception) -> None:
    """A stop is asked for while a batch is under way, which fails then."""
    query, begun, stopped = Query(), threading.Event(), threading.Event()

    def process(_: MicroBatch) -> BatchReport:
        begun.set()
        assert stopped.wait(20)
        raise error

    none = cast("Any", None)
    stream = Stream(none, none, KafkaOffsets(), process, none, none)

    def batch() -> None:
        with stream._busy, suppress(type(error)):
            stream._batch({})

    working = threading.Thread(target=batch, daemon=True)
    working.start()
    assert begun.wait(20)
    stream.stop()
    stopped.set()
    assert stream._watch(cast("Any", query), once=True) == {}


@pytest.mark.parametrize("error", [RetriableError("the catalog is away"), CommitUnknown("nobody answers")])
def test_a_stop_leaves_a_batch_that_waits_for_others(error: Exception) -> None:
    """That it was not through is told in one line, and is no failure: the next start brings it in."""
    with capture_logs() as told:
        _stop_within_a_batch(error)
    assert [(line["log_level"], line["reason"]) for line in told] == [("warning", str(error))]
    assert "comes again at the next start" in told[0]["event"]


def test_a_stop_hides_no_failure_of_the_last_batch() -> None:
    """What a person has to look at is raised, though the run was to end anyhow."""
    with pytest.raises(GapError, match="the topic was made again"):
        _stop_within_a_batch(GapError("the topic was made again"))


def test_what_appears_ends_the_query() -> None:
    """Topic-partitions that are new are given, with where they begin."""
    cluster, query = SilentCluster(), Query()
    cluster.released.set()
    stream = Stream(
        cast("Any", None), cast("Any", None), KafkaOffsets(), cast("Any", None), cast("Any", cluster), cast("Any", None)
    )
    assert stream._watch(cast("Any", query), once=False) == {("t", 0): 7}
    assert query.stopped.is_set()


def test_a_partition_that_appears_without_its_first_records_ends_the_run() -> None:
    """Retention was faster than the sink: the query is stopped, and what is gone is told."""
    cluster, query = SilentCluster(), Query()
    cluster.released.set()
    none, position = cast("Any", None), KafkaOffsets("c", {"t": "id"}, {("t", 1): 3})
    stream = Stream(none, none, position, none, cast("Any", cluster), none)
    stream._at = dict(position.offsets)
    with pytest.raises(GapError, match="t-0 has appeared since the sink last looked, and begins at offset 7"):
        stream._watch(cast("Any", query), once=False)
    assert query.stopped.is_set()


def test_whatever_ends_the_watch_waits_for_the_batch_and_stops_the_query() -> None:
    """Else a batch would go on while the run lets go of what it needs, and the query in a process that lives on."""
    query, none, ends, beats = Query(), cast("Any", None), list[str](), itertools.count()

    def beat() -> None:
        if not next(beats):
            raise RuntimeError("nobody foresaw this")

    stream = Stream(none, none, KafkaOffsets(), none, none, none, beat=beat)
    begun = threading.Event()

    def batch() -> None:
        with stream._busy:
            begun.set()
            time.sleep(0.3)  # of a long batch
            ends.append("batch")

    threading.Thread(target=batch, daemon=True).start()
    assert begun.wait(20)
    with pytest.raises(RuntimeError, match="nobody foresaw this"):
        stream._watch(cast("Any", query), once=False)
    assert ends == ["batch"]
    assert query.stopped.is_set()


def test_a_look_raises_where_its_answer_is_asked_for(tmp_path: Path) -> None:
    """What went wrong in the thread is told to who polls; the next look is made all the same."""
    looks = list[int]()

    def look() -> Path:
        looks.append(1)
        if len(looks) == 1:
            raise FatalError("no rights")
        return tmp_path

    background, told = BackgroundQuery(look), list[object]()
    background._due_s = 0.0
    while len(told) < 2:
        try:
            found = background.poll()
        except FatalError as error:
            told.append(str(error))
            background._due_s = 0.0
        else:
            told += [] if found is None else [found]
    assert told == ["no rights", tmp_path]


def test_a_stop_does_not_wait_for_the_warm_up(tmp_path: Path) -> None:
    """Brokers that have gone since the start hold the warm-up up for minutes; a batch that waits for it lets go."""
    asked = threading.Event()

    def warmed(timeout_s: float) -> bool:
        asked.set()
        time.sleep(min(timeout_s, 0.01))
        return False

    stream = Stream(
        cast("Any", None),
        cast("Any", None),
        KafkaOffsets(),
        cast("Any", None),
        cast("Any", None),
        cast("Any", None),
        await_warmup=warmed,
    )
    waiting = threading.Thread(target=stream._range, args=(0, tmp_path, threading.Event()), daemon=True)
    waiting.start()
    assert asked.wait(20)
    stream.stop()
    waiting.join(20)
    assert not waiting.is_alive()


def _sink_settings(tmp_path: Path) -> SinkSettings:
    file = tmp_path / "sink.properties"
    file.write_text("bootstrap.servers=127.0.0.1:9\ntopics=t\ndebezium.sink.iceberg.warehouse=/w\n")
    return load([file], environ={})


class Left(Exception):
    """Whoever starts is asked to leave."""


def test_a_start_that_is_left_does_not_wait_for_brokers_that_are_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked beside the start of the JVM, for minutes; a signal ends it at once, and they are asked no more."""
    asked, released, tries = threading.Event(), threading.Event(), list[int]()

    def check(_: object) -> KafkaSettings:
        tries.append(1)
        asked.set()
        assert released.wait(60)
        raise RetriableError("nobody answers")

    @contextmanager
    def open_session(*_: object) -> Iterator[None]:
        assert asked.wait(20)
        raise Left
        yield

    monkeypatch.setattr(runner, "_check_reader", check)
    monkeypatch.setattr(runner, "open_session", open_session)
    monkeypatch.setattr(runner, "REFUSAL_S", 0.01)

    def start() -> None:
        with pytest.raises(Left):
            runner.run_sink(_sink_settings(tmp_path), once=False, terminal=False)

    starting = threading.Thread(target=start, daemon=True)
    starting.start()
    starting.join(20)
    assert not starting.is_alive()
    released.set()
    time.sleep(0.5)
    assert len(tries) == 1


def test_a_pause_gives_up_the_first_look(tmp_path: Path) -> None:
    """Brokers that are away when a process starts hold no pause up; the end comes at once, too."""
    monitor = runner.SinkMonitor()
    arguments = (cast("Any", None), _sink_settings(tmp_path), monitor)
    living = threading.Thread(
        target=runner.live_sink, args=arguments, kwargs={"survives": False, "first_look": Future()}, daemon=True
    )
    living.start()
    monitor.lifecycle.pause()
    assert monitor.lifecycle.wait_for("PAUSED", 20)
    monitor.lifecycle.stop()
    living.join(20)
    assert not living.is_alive()


@pytest.mark.parametrize("first", [True, False], ids=["the first run", "a later one"])
def test_a_sink_waits_for_its_topics_for_as_long_as_it_takes(
    first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so once, its loop moves meanwhile, and the reader is chosen once; what appears is read."""
    looks, readers = list[int](), list[int]()

    def inspect(_: object) -> ClusterState:
        looks.append(1)
        if len(looks) < 4:
            raise NoTopics("none")
        return ClusterState("c", {}, {}, {})

    settings = _sink_settings(tmp_path)

    def check(_: object) -> KafkaSettings:
        readers.append(1)
        return settings.kafka

    monkeypatch.setattr(runner, "inspect_cluster", inspect)
    monkeypatch.setattr(runner, "_check_reader", check)
    monkeypatch.setattr(runner, "_TOPICS_S", 0.01)
    lifecycle = Lifecycle()
    with capture_logs() as lines:
        if first:
            left = threading.Event()
            found = runner._look_for_topics(settings, runner._unless(left, lambda: None), once=False)
        else:
            found, _ = runner._look_while_wanted(lifecycle, settings, once=False)
            assert lifecycle.beat_at is not None
    assert found.cluster_id == "c"
    assert len(looks) == 4
    assert len(readers) == (0 if first else 1)
    assert [line["event"] for line in lines] == ["none of the selected topics exists yet, and the sink waits for one"]


def test_a_run_to_the_end_waits_for_no_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--once` there is no end to run to: it is an error, when retries are over."""

    def inspect(_: object) -> ClusterState:
        raise NoTopics("none of them")

    settings = _sink_settings(tmp_path)
    settings = attrs.evolve(settings, errors=attrs.evolve(settings.errors, retry_timeout_ms=0))
    monkeypatch.setattr(runner, "inspect_cluster", inspect)
    with pytest.raises(RetriableError, match="none of them"):
        runner._look_for_topics(settings, lambda: None, once=True)
