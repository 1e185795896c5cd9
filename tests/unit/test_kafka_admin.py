"""The driver's look at a cluster -> offsets, or an error to try again: never a number that stands for none."""

from __future__ import annotations

import re
import socket
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from connector.cli.status.end_offsets import read_ends
from connector.errors import FatalError, RetriableError
from connector.kafka.admin import KafkaAdmin, TopicInfo
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.listeners import require_listener
from connector.kafka.client_errors import is_transient_error
from connector.runtime.deadline import Deadline
from connector.runtime.topic_partitions import UNKNOWN_TOPIC_IDS
from connector.settings import KafkaSettings, SinkSettings, load
from connector.sink.microbatch.cluster import inspect_cluster
from tests.model.record_batches import Record, batch
from tests.servers.brokers import EVENT_HUBS, EVENT_HUBS_2022, KAFKA_2_1, Brokers, Log

OFFERED = {0: (0, 7), 1: (4, 11), 2: (1, 5), 3: (1, 7), 18: (0, 0)}


def test_a_topic_partition_without_a_leader_has_no_offset() -> None:
    """While nobody leads it, its end is unknown: librdkafka's number for that is not taken for an offset."""
    with Brokers(OFFERED) as cluster:
        cluster.logs["t", 0] = Log(leader=-1)
        admin = KafkaAdmin(KafkaSettings(cluster.servers, ("t",), None, "", "earliest", {}, {}, {}), 5.0)
        with pytest.raises(RetriableError, match="No leaders found"):
            admin.fetch_end_offsets([("t", 0)])


@pytest.mark.parametrize("code", [5, 6, 56, 74, 75, 78])
def test_a_leader_that_moves_is_asked_again(code: int) -> None:
    """What brokers say while leadership moves passes: fenced and unknown epochs, a high watermark that is behind."""
    assert is_transient_error(KafkaError(code))


@pytest.mark.parametrize(
    "code",
    [
        *(14, 15, 16, 19, 20, 41, 80, 88, 106),
        *(KafkaError._WAIT_COORD, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT),
    ],
)
def test_what_java_tries_again_passes(code: int) -> None:
    """Coordinators and controllers that move, too few replicas, open transactions, and what we gave up ourselves."""
    assert is_transient_error(KafkaError(code))


@pytest.mark.parametrize(
    "code",
    [
        *(KafkaError._DESTROY_BROKER, KafkaError._UNKNOWN_BROKER, KafkaError._FAIL),
        *(KafkaError._TIMED_OUT_QUEUE, KafkaError._WAIT_CACHE),
    ],
)
def test_a_broker_that_librdkafka_lets_go_of_is_asked_again(code: int) -> None:
    """The client gives an address up while a request waits for it: that of a broker which went, or starts anew."""
    assert is_transient_error(KafkaError(code))


class _Topics:
    """Knows topics, and makes none; notes down what it was asked to make."""

    def __init__(self, known: set[str], code: int) -> None:
        self.known, self._code = known, code
        self.made: list[str] = []
        self.hidden: set[str] = set()

    def list_topics(self, **_: Any) -> Any:
        return SimpleNamespace(topics={name: SimpleNamespace(partitions=[1]) for name in self.known})

    def describe_topics(self, wanted: Any, **_: Any) -> dict[str, Future[Any]]:
        found: dict[str, Future[Any]] = {}
        for name in wanted.topic_names:
            found[name] = Future()
            if name in self.known:
                found[name].set_result(SimpleNamespace(name=name, topic_id="i", partitions=[1]))
            else:
                hidden = name in self.hidden
                code = KafkaError.TOPIC_AUTHORIZATION_FAILED if hidden else KafkaError.UNKNOWN_TOPIC_OR_PART
                found[name].set_exception(KafkaException(KafkaError(code)))
        return found

    def create_topics(self, wanted: list[Any], **_: Any) -> dict[str, Future[Any]]:
        self.made += [one.topic for one in wanted]
        future: Future[Any] = Future()
        future.set_exception(KafkaException(KafkaError(self._code)))
        return {one.topic: future for one in wanted}


def test_a_topic_that_is_there_needs_no_right_to_create_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers refuse who may not create topics, whether there is one or not: nobody asks them for one that is there."""
    topics = _Topics({"there"}, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr("connector.kafka.admin.AdminClient", lambda _: topics)
    cluster = KafkaAdmin(KafkaSettings("h:1", (), None, "", "earliest", {}, {}, {}))
    cluster.create("there", 1, 1, {})
    assert topics.made == []
    with pytest.raises(
        FatalError, match="topic missing is not there, or may not be seen, and this user may not create it"
    ):
        cluster.create("missing", 1, 1, {})


def test_a_listed_topic_that_may_not_be_seen_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of all topics leaves it out without a word: the sink would read the others, or wait, for ever."""
    topics = _Topics({"there", "other"}, 0)
    topics.hidden.add("hidden")
    monkeypatch.setattr("connector.kafka.admin.AdminClient", lambda _: topics)

    def select(*names: str) -> set[str]:
        return set(KafkaAdmin(KafkaSettings("h:1", names, None, "", "earliest", {}, {}, {})).select_topics())

    assert select("there", "not yet") == {"there"}
    with pytest.raises(FatalError, match="topic hidden: this user may not see whether it is there; give it DESCRIBE"):
        select("there", "hidden")


def test_a_topic_that_another_makes_meanwhile_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that look at the same time both find none, and one of them makes it."""
    topics = _Topics(set(), KafkaError.TOPIC_ALREADY_EXISTS)
    monkeypatch.setattr("connector.kafka.admin.AdminClient", lambda _: topics)
    KafkaAdmin(KafkaSettings("h:1", (), None, "", "earliest", {}, {}, {})).create("t", 1, 1, {})
    assert topics.made == ["t"]


@pytest.mark.parametrize("offered", [EVENT_HUBS, EVENT_HUBS_2022, KAFKA_2_1])
def test_the_driver_finds_offsets_wherever_tasks_read(offered: dict[int, tuple[int, int]]) -> None:
    """Brokers of old protocol versions tell topics, their ends and their beginnings."""
    with Brokers({**offered, 18: (0, 0)}) as cluster:
        cluster.logs["t", 0] = log = Log()
        log.add(batch([Record(0, b"k", b"v")], 0, 0))
        admin = KafkaAdmin(KafkaSettings(cluster.servers, ("t",), None, "", "earliest", {}, {}, {}), 5.0)
        assert admin.id() == "cluster"
        assert (admin.names(), admin.topics(["t"])["t"].partitions) == ({"t"}, 1)
        assert admin.topics(["t"])["t"].id in UNKNOWN_TOPIC_IDS
        assert (admin.fetch_beginning_offsets([("t", 0)]), admin.fetch_end_offsets([("t", 0)])) == (
            {("t", 0): 0},
            {("t", 0): 1},
        )


def test_the_time_for_an_answer_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow logins get the time that the settings of the admin client give; without any it is a quarter of a minute."""
    configs, clock = list[dict[str, Any]](), _Clock()
    client = _SlowClient(clock)

    def make(config: dict[str, Any]) -> _SlowClient:
        configs.append(config)
        return client

    monkeypatch.setattr("connector.kafka.admin.AdminClient", make)
    slow = {"default.api.timeout.ms": "60000", "socket.connection.setup.timeout.ms": "45000"}
    for java in ({}, slow):
        KafkaAdmin(KafkaSettings("h:1", ("t",), None, "", "earliest", {}, {}, java)).names()
    assert [timeout_s for _, timeout_s in client.asked] == [15.0, 60.0]
    assert [int(config["socket.connection.setup.timeout.ms"]) for config in configs] == [10_000, 45_000]


def test_missing_rights_do_not_pass() -> None:
    """A topic that we may not read stays so."""
    assert not is_transient_error(KafkaError(29))
    assert not is_transient_error(ValueError())


class _Client:
    """Knows the leaders of the time when it was made: those of the first one have moved since."""

    made = 0

    def __init__(self, _: dict[str, Any]) -> None:
        _Client.made += 1
        self._is_stale = _Client.made == 1

    def list_offsets(self, wanted: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        found: dict[Any, Future[Any]] = {}
        for at in wanted:
            found[at] = Future()
            if self._is_stale:
                found[at].set_exception(KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH)))
            else:
                found[at].set_result(SimpleNamespace(offset=7))
        return found


def test_leaders_that_have_moved_are_learnt_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka keeps the epochs that it asked with first: after a refusal the next try is another client's."""
    monkeypatch.setattr("connector.kafka.admin.AdminClient", _Client)
    monkeypatch.setattr(_Client, "made", 0)
    cluster = KafkaAdmin(KafkaSettings("h:1", ("t",), None, "", "earliest", {}, {}, {}))
    with pytest.raises(RetriableError):
        cluster.fetch_end_offsets([("t", 0)])
    assert cluster.fetch_end_offsets([("t", 0)]) == {("t", 0): 7}


class _Clock:
    """Time goes on where somebody waits."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class _SlowClient:
    """Answers each question after 1.25 s, or not at all; notes down what it was asked, and how long that may take."""

    def __init__(self, clock: _Clock, *, is_absent: bool = False) -> None:
        self.asked: list[tuple[str, float]] = []
        self._clock, self._is_absent = clock, is_absent

    def list_topics(self, *, timeout: float) -> Any:
        self._wait("topics", timeout)
        names = {"t": 2, "other": 1}
        return SimpleNamespace(topics={name: SimpleNamespace(partitions=range(n)) for name, n in names.items()})

    def list_offsets(self, wanted: dict[Any, Any], *, request_timeout: float, **_: Any) -> dict[Any, Future[Any]]:
        self._wait("offsets", request_timeout)
        found: dict[Any, Future[Any]] = {}
        for at in wanted:
            found[at] = Future()
            found[at].set_result(SimpleNamespace(offset=7))
        return found

    def describe_topics(self, wanted: Any, *, request_timeout: float) -> dict[str, Future[Any]]:
        self._wait("ids", request_timeout)
        found: Future[Any] = Future()
        found.set_result(SimpleNamespace(name="t", topic_id="i", partitions=[1, 2]))
        return dict.fromkeys(wanted.topic_names, found)

    def _wait(self, what: str, timeout_s: float) -> None:
        self.asked.append((what, timeout_s))
        self._clock.now_s += min(timeout_s, 100 if self._is_absent else 1.25)
        if self._is_absent:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def _settings() -> SinkSettings:
    given = {"bootstrap.servers": "h:1", "topics": "t", "debezium.sink.iceberg.warehouse": "/w"}
    return load((), given)


def test_a_look_asks_three_things_within_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for end offsets asks for the topics' ids too, and each answer has what those before it left."""
    clock = _Clock()
    client = _SlowClient(clock)
    monkeypatch.setattr("connector.kafka.admin.AdminClient", lambda _: client)
    seen = read_ends(_settings(), Deadline.after(3.0, clock))
    assert (seen.ends, seen.unanswered, seen.ids) == ({("t", 0): 7, ("t", 1): 7}, "", {"t": "i"})
    assert client.asked == [("topics", 3.0), ("offsets", 1.75), ("ids", 0.5)]
    # Ends without ids are better than none.
    clock.now_s, client.asked = 100.0, []
    seen = read_ends(_settings(), Deadline.after(2.0, clock))
    assert (seen.ends, seen.ids) == ({("t", 0): 7, ("t", 1): 7}, {})


def test_a_broker_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the limit nothing more is asked, and one line says why there is no lag."""
    clock = _Clock()
    client = _SlowClient(clock, is_absent=True)
    monkeypatch.setattr("connector.kafka.admin.AdminClient", lambda _: client)
    seen = read_ends(_settings(), Deadline.after(3.0, clock))
    assert seen.ends == {} and seen.unanswered.startswith("Kafka gave no answer")
    assert client.asked == [("topics", 3.0)]


def test_servers_that_all_refuse_are_known_at_once() -> None:
    """Each is named with its reason; one that listens, or says nothing, is for the client to ask."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        refusing, listening = (f"127.0.0.1:{one.getsockname()[1]}" for one in (taken, server))
        both = f"{refusing},no.such.host.invalid:1"
        told = rf"no bootstrap server answers: {re.escape(refusing)}: .*; no\.such\.host\.invalid:1: "
        with pytest.raises(RetriableError, match=told):
            require_listener(ClusterAddress.of({"bootstrap.servers": both}), 30.0)
        require_listener(ClusterAddress.of({"bootstrap.servers": f"{both},{listening}"}), 30.0)


def test_nothing_is_asked_after_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that took all of the time leave none for the next question."""
    clock = _Clock()
    client = _SlowClient(clock)
    monkeypatch.setattr("connector.kafka.admin.AdminClient", lambda _: client)
    seen = read_ends(_settings(), Deadline.after(1.0, clock))
    assert "h:1 did not answer within 1 s" in seen.unanswered
    assert client.asked == [("topics", 1.0)]


@pytest.mark.parametrize(("level", "end"), [("", 3), ("read_committed", 3), ("READ_UNCOMMITTED", 5)])
def test_what_an_open_transaction_holds_back_is_behind_the_end(level: str, end: int) -> None:
    """A sink can read so far, and is not behind: as a Java consumer of that isolation level tells its lag."""
    with Brokers(OFFERED) as cluster:
        cluster.logs["t", 0] = Log(stable=3, start=5)
        java = {"isolation.level": level} if level else {}
        admin = KafkaAdmin(KafkaSettings(cluster.servers, ("t",), None, "g", "earliest", java, {}, {}))
        assert admin.fetch_end_offsets([("t", 0)]) == {("t", 0): end}
        assert admin.fetch_log_ends([("t", 0)]) == {("t", 0): 5}
        seen = inspect_cluster(FixedDescription(admin))  # type: ignore[arg-type]
        assert (seen.ends, seen.log_ends) == ({("t", 0): end}, {("t", 0): 5})


class FixedDescription:
    """An admin client that does not ask what the double cannot answer: ids of cluster and topics."""

    def __init__(self, admin: KafkaAdmin) -> None:
        self._admin = admin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._admin, name)

    def id(self) -> str:
        return "c"

    def select_topics(self) -> dict[str, TopicInfo]:
        return {"t": TopicInfo("t", "id", 1)}
