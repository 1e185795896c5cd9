"""Answers of brokers -> the records of a range, or the error that they mean: brokers that err are believed late."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from connector.errors import FatalError, GapError, RetriableError
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.backoff import pause_s
from connector.kafka.brokers.client import BrokerClient, broker_client_for
from connector.kafka.consumer import fetcher, log_bounds
from connector.kafka.consumer.fetch_meter import FetchMeter
from connector.kafka.consumer.offset_ranges import OffsetRange
from connector.kafka.consumer.raw_batches import find_unreadable
from connector.kafka.consumer.single_records import read_forward
from connector.kafka.protocol.requests import EpochEndRequest, MetadataRequest
from tests.model.record_batches import Record, batch
from tests.servers.brokers import KAFKA_2_1, KAFKA_4, Brokers, Log

QUICK = {"retry.backoff.ms": "1", "retry.backoff.max.ms": "2"}


def reader(cluster: Brokers, **more: str) -> BrokerClient:
    """A client that loses no time."""
    named = {key.replace("_", "."): value for key, value in more.items()}
    return BrokerClient(ClusterAddress.of({"bootstrap.servers": cluster.servers, **QUICK, **named}))


def read(client: BrokerClient, start: int, end: int, epoch: int = -1, meter: FetchMeter | None = None) -> list[int]:
    """The offsets of what is read of t-0, a batch per fetch."""
    chunks = fetcher.fetch_records(
        client, OffsetRange("t", 0, start, end, epoch), fetcher.FetchSettings(partition_bytes=1), meter
    )
    return [offset for chunk in chunks for offset in chunk.offset.tolist()]


def fill(log: Log, start: int, end: int, epoch: int) -> None:
    """Add records, one per batch."""
    for offset in range(start, end):
        log.add(batch([Record(offset, b"k", b"v")], offset, offset, epoch=epoch))


@pytest.fixture
def cluster() -> Brokers:
    """Three nodes; t-0 has the offsets 5 to 9 and is led by the first, in epoch 3."""
    made = Brokers(KAFKA_4, nodes=3)
    log = made.logs["t", 0] = Log(start=5, leader=1, epoch=3)
    fill(log, 5, 10, 3)
    return made


def test_out_of_range_is_no_gap_while_the_log_has_the_records(cluster: Brokers) -> None:
    """However often brokers say so while they change their roles: the records are there, and are read."""
    cluster.faults = {1: [1] * 5, 2: [6, 0, 0, 5]}
    with cluster:
        assert read(reader(cluster), 5, 10) == [5, 6, 7, 8, 9]


def test_each_thread_has_connections_of_its_own(cluster: Brokers) -> None:
    """Two that ask side by side, as the samples and the warm-up of a start do, hear no answers of each other's."""
    address, found = ClusterAddress.of({"bootstrap.servers": "h:1"}), list[BrokerClient]()
    threads = [threading.Thread(target=lambda: found.append(broker_client_for(address))) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join()
    found += [broker_client_for(address), broker_client_for(address)]
    assert len({id(client) for client in found}) == 3
    assert found[2] is found[3]
    with cluster:
        client = reader(cluster)
        assert read(client, 5, 6) == [5]
        (connection,) = client._open.values()
        del client
        assert connection._socket.fileno() == -1


def test_what_the_leader_has_removed_is_a_gap(cluster: Brokers) -> None:
    """Where the log begins behind the offset, the records are gone, and the message says where it begins."""
    with cluster, pytest.raises(GapError, match=r"gone .* t-0 offset 3; it begins at 5 now"):
        read(reader(cluster), 3, 7)


def test_a_log_that_ends_too_early_is_a_gap(cluster: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the leader says for long enough that its log ends in front of the offset, records were lost."""
    monkeypatch.setattr(log_bounds, "CONFIRM_S", 0.02)
    with cluster, pytest.raises(GapError, match=r"t-0 offset 12; its leader's log ends at 10 now"):
        read(reader(cluster), 12, 14)


def test_a_broker_that_stays_at_it_is_an_error_to_try_again(cluster: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is taken for lost that the leader does not call lost; after half a minute the batch is tried anew."""
    monkeypatch.setattr(fetcher, "_RETRY_TIMEOUT_S", -1.0)
    cluster.faults = {1: [1] * 99}
    with cluster, pytest.raises(RetriableError, match=r"out of range, though the log begins at offset 5"):
        read(reader(cluster), 5, 7)


def test_a_moved_leader_is_found(cluster: Brokers) -> None:
    """A leader that moves while its topic-partition is read, and one that is fenced, are asked for again."""
    log = cluster.logs["t", 0]

    def move(asked: Brokers) -> None:
        fetches = sum(one.api == 1 for one in asked.asked)
        log.leader, log.epoch = (2, 4) if fetches >= 3 else (1, 3)

    cluster.on_fetch = move
    meter = FetchMeter()
    with cluster:
        assert read(reader(cluster), 5, 10, meter=meter) == [5, 6, 7, 8, 9]
    assert {one.node for one in cluster.asked if one.api == 1} == {1, 2}
    assert meter.metrics.retries >= 1
    assert meter.metrics.epochs == {("t", 0): (9, 3)}


def test_a_leader_that_the_others_have_lost_is_left(cluster: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """It still takes itself for the leader, and has nothing new: another broker is asked who leads."""
    monkeypatch.setattr(fetcher, "_NOTHING_THERE_S", 0.02)
    cluster.own_logs[1] = {("t", 0): Log(start=5, leader=1, epoch=3)}
    fill(cluster.own_logs[1]["t", 0], 5, 7, 3)
    log = cluster.logs["t", 0]
    log.leader, log.epoch = 2, 4
    with cluster:
        client = reader(cluster)
        assert read(client, 5, 10, epoch=3) == [5, 6, 7, 8, 9]
        assert client.leader(("t", 0)).host == cluster.advertised[2]


def test_a_broker_that_knows_no_leader_is_not_the_only_one_asked(cluster: Brokers) -> None:
    """One that has not heard of a topic yet, or any more, holds up nobody who can ask another."""
    cluster.own_logs[1], cluster.logs["t", 0].leader = {}, 2
    servers = f"{cluster.servers},127.0.0.1:{cluster.port(3)}"
    with cluster:
        assert read(reader(cluster, bootstrap_servers=servers), 5, 10) == [5, 6, 7, 8, 9]


def test_a_replica_that_nobody_asked_for_is_not_looked_for_again_and_again(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that only names it gives nothing, which has an end."""
    monkeypatch.setattr(fetcher, "_RETRY_TIMEOUT_S", 0.1)
    log = cluster.logs["t", 0]
    log.replica, log.insists = 2, True
    with cluster, pytest.raises(RetriableError, match="the broker has nothing there; its log ends at 10"):
        read(reader(cluster), 5, 10)


def test_an_epoch_that_no_leader_had_is_not_believed(cluster: Brokers) -> None:
    """No checksum covers it, and with one that is too great no later cut of the log would be noticed."""
    log = cluster.logs["t", 0]
    for place, (base, last, epoch, data) in enumerate(list(log.batches)):
        if base in (7, 8):
            log.batches[place] = (base, last, epoch, data[:12] + struct.pack(">i", 1 << 20) + data[16:])
    meter = FetchMeter()
    with cluster:
        assert read(reader(cluster), 5, 9, meter=meter) == [5, 6, 7, 8]
    assert meter.metrics.epochs == {("t", 0): (6, 3)}


def test_a_batch_that_says_it_is_longer_takes_no_later_record(cluster: Brokers) -> None:
    """Its checksum tells that it is not as it was written: it ends where the next begins, which is fetched to know it.

    The last of a log ends where that does.
    """
    log = cluster.logs["t", 0]
    for place, (base, last, epoch, data) in enumerate(list(log.batches)):
        if base in (6, 9):
            log.batches[place] = (base, last, epoch, data[:23] + struct.pack(">i", 1 << 20) + data[27:])
    with cluster:
        wanted, how = OffsetRange("t", 0, 5, 10), fetcher.FetchSettings(partition_bytes=1)
        chunks = list(fetcher.fetch_records(reader(cluster), wanted, how))
        assert [offset for chunk in chunks for offset in chunk.offset.tolist()] == [5, 7, 8]
        assert [(one.first, one.last) for chunk in chunks if (one := chunk.unreadable) is not None] == [(6, 6), (9, 9)]
        address = ClusterAddress.of({"bootstrap.servers": cluster.servers, **QUICK})
        found, _ = find_unreadable(address, OffsetRange("t", 0, 6, 10), 1, 1, 1 << 20)
        assert found is not None and (found.first, found.last) == (6, 6)
        single = read_forward(address, ("t", 0), 6, timeout_s=0, max_unpacked_bytes=1 << 20, one=True)
        assert next(single).offset.tolist()[:1] == [7]


def test_a_log_that_lost_the_end_of_a_range_is_a_gap(cluster: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The offset that is next is where the log ends, which is no error by itself: the records behind it were there."""
    monkeypatch.setattr(fetcher, "_NOTHING_THERE_S", 0.01)
    monkeypatch.setattr(log_bounds, "CONFIRM_S", 0.1)
    with cluster, pytest.raises(GapError, match=r"had been written: t-0 offset 10; its leader's log ends at 10 now"):
        read(reader(cluster), 8, 14)


def test_a_tail_without_batches_is_never_passed_over(cluster: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """What compaction leaves is told by batches: a leader that sends none may have them later; the bounds are told."""
    monkeypatch.setattr(fetcher, "_NOTHING_THERE_S", 0.01)
    monkeypatch.setattr(fetcher, "_RETRY_TIMEOUT_S", 0.1)
    cluster.logs["t", 0].emptied = 4
    told = r"t-0 stays unread at offset 10: its leader sends no .* begins at offset 5 and ends at 14"
    with cluster, pytest.raises(RetriableError, match=told):
        read(reader(cluster), 8, 14)


def test_what_an_open_transaction_holds_back_is_told(cluster: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker has the records, and does not give them yet."""
    monkeypatch.setattr(fetcher, "_RETRY_TIMEOUT_S", 0.1)
    cluster.logs["t", 0].stable = 8
    with cluster, pytest.raises(RetriableError, match=r"at offset 8: a transaction is open from offset 8 on"):
        read(reader(cluster), 5, 10)


def test_errors_of_a_connection_name_the_broker(cluster: Brokers) -> None:
    """Also where it fails while something is sent; and nobody is given the answer to another's question."""
    with cluster:
        client = reader(cluster)
        connection = client.connection(cluster.advertised[1])
        connection.send(EpochEndRequest(("t", 0), 3))
        with pytest.raises(ConnectionError, match=f"{cluster.servers} was asked something else before"):
            connection.ask(MetadataRequest("t"))
        connection._socket.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError, match=f"{cluster.servers}: Broken pipe"):
            connection.send(MetadataRequest("t"))
        connection.close()
        with pytest.raises(ConnectionError, match=f"{cluster.servers}: Bad file descriptor"):
            connection.send_blob(b"x")


def test_a_cut_log_is_noticed_where_its_leader_changes(cluster: Brokers) -> None:
    """Records that took the places of those read are not taken for what comes next."""
    log = cluster.logs["t", 0]

    def lose(asked: Brokers) -> None:
        if sum(one.api == 1 for one in asked.asked) == 3:
            del log.batches[1:]
            log.leader, log.epoch = 2, 4
            fill(log, 6, 12, 4)

    cluster.on_fetch = lose
    with cluster, pytest.raises(GapError, match=r"t-0 was read up to offset 7, .* up to 6 only"):
        read(reader(cluster), 5, 10)


def test_a_log_that_was_cut_between_two_batches_is_noticed(cluster: Brokers) -> None:
    """The epoch of the record in front of a range is compared with the leader's, and one that fits costs nothing."""
    log = cluster.logs["t", 0]
    with cluster:
        assert read(reader(cluster), 8, 10, epoch=3) == [8, 9]
        assert not cluster.versions(23)
        log.epoch = 4
        fill(log, 10, 12, 4)
        assert read(reader(cluster), 10, 12, epoch=3) == [10, 11]
        assert cluster.versions(23) == {3}
        del log.batches[3:]
        log.epoch = 5
        fill(log, 8, 14, 5)
        with pytest.raises(GapError, match=r"t-0 was read up to offset 10, .* \(leader epoch 3\) up to 8 only"):
            read(reader(cluster), 10, 12, epoch=3)


def test_brokers_that_cannot_tell_epochs_are_read(cluster: Brokers) -> None:
    """Older brokers know no epochs' ends for readers: they are read without."""
    cluster.offered = dict(KAFKA_2_1)
    cluster.logs["t", 0].epoch = 4
    with cluster:
        assert read(reader(cluster), 8, 10, epoch=3) == [8, 9]


def test_a_nearer_replica_is_read(cluster: Brokers) -> None:
    """With client.rack the replica that the leader names is asked; where it errs the leader is again."""
    log = cluster.logs["t", 0]
    log.replica = 2
    with cluster:
        assert read(reader(cluster), 5, 10) == [5, 6, 7, 8, 9]
        assert {one.node for one in cluster.asked if one.api == 1} == {1}
        cluster.asked.clear()
        assert read(reader(cluster, client_rack="here", client_id="tester"), 5, 10) == [5, 6, 7, 8, 9]
        assert [one.node for one in cluster.asked if one.api == 1] == [1, 2, 2, 2, 2, 2]
        assert {one.client for one in cluster.asked} == {"tester"}
        client = reader(cluster, client_rack="here")
        cluster.faults = {1: [0, 1]}
        assert read(client, 5, 10) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("replica", [1, 2, 9])
def test_a_replica_that_cannot_be_asked_costs_its_leader_nothing(cluster: Brokers, replica: int) -> None:
    """Where the named replica is away, unknown or the leader itself, the leader gives the records, by no rack."""
    log = cluster.logs["t", 0]
    log.replica = replica
    cluster.kill(2)
    with cluster:
        assert read(reader(cluster, client_rack="here"), 5, 10) == [5, 6, 7, 8, 9]
    assert sum(one.api == 1 for one in cluster.asked) <= 2 * 5 + 1


def test_a_quota_of_no_time_is_no_quota(cluster: Brokers) -> None:
    """A broker that says to wait for a negative time is asked again, as after any answer that makes no sense."""
    cluster.throttle_ms = [-5]
    meter = FetchMeter()
    with cluster:
        assert read(reader(cluster), 5, 7, meter=meter) == [5, 6]
    assert (meter.metrics.throttle_ms, meter.metrics.retries) == (0, 1)


def test_a_quota_is_waited_for(cluster: Brokers) -> None:
    """An answer that only throttles is no failure, and its time is counted."""
    cluster.throttle_ms = [1, 2]
    meter = FetchMeter()
    with cluster:
        assert read(reader(cluster), 5, 7, meter=meter) == [5, 6]
    assert (meter.metrics.throttle_ms, meter.metrics.retries) == (3, 0)
    assert meter.metrics.size_bytes > 0
    assert meter.metrics.readers == {"native"}


def test_errors_have_names(cluster: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """What brokers answer is told by the name that Kafka's documentation has."""
    cluster.faults = {1: [29]}
    with cluster:
        with pytest.raises(FatalError, match=r"t-0 cannot be read from offset 5: TOPIC_AUTHORIZATION_FAILED \(29\)"):
            read(reader(cluster), 5, 7)
        cluster.faults = {3: [29]}
        with pytest.raises(FatalError, match=r"topic t: not allowed to read it: TOPIC_AUTHORIZATION_FAILED \(29\)"):
            read(reader(cluster), 5, 7)
        cluster.faults = {1: [76]}
        with pytest.raises(FatalError, match="zstd"):
            read(reader(cluster), 5, 7)
        monkeypatch.setattr(fetcher, "_RETRY_TIMEOUT_S", -1.0)
        cluster.faults = {1: [56]}
        with pytest.raises(RetriableError, match=r"KAFKA_STORAGE_ERROR \(56\)"):
            read(reader(cluster), 5, 7)


@pytest.mark.parametrize("code", [17, 29, 42, 44, 35, 87])
def test_a_topic_that_no_later_try_changes_ends_the_run(cluster: Brokers, code: int) -> None:
    """What a broker says of a topic for good is told at once, by its name."""
    cluster.faults = {3: [code]}
    with cluster, pytest.raises(FatalError, match=rf"topic t.*: [A-Z_]+ \({code}\)"):
        read(reader(cluster), 5, 7)


@pytest.mark.parametrize("code", [3, 5, 6, 9, 72, 100, -1])
def test_a_topic_that_has_no_leader_now_is_asked_for_again(cluster: Brokers, code: int) -> None:
    """What passes is waited for, and its reason is told where it lasts."""
    with cluster:
        cluster.faults = {3: [code, code]}
        assert read(reader(cluster), 5, 7) == [5, 6]
        cluster.faults = {3: [code]}
        with pytest.raises(RetriableError, match=rf"t-0 has no leader now: [A-Z_]+ \({code}\)"):
            reader(cluster).leader(("t", 0))


def test_an_error_of_another_partition_is_not_ours(cluster: Brokers) -> None:
    """The rest of a topic is read although somebody leads one of its partitions wrongly."""
    cluster.partition_faults = {("t", 1): 44}
    cluster.logs["t", 1] = Log(leader=-1)
    with cluster:
        assert read(reader(cluster), 5, 7) == [5, 6]
        with pytest.raises(FatalError, match=r"t-1: .*POLICY_VIOLATION \(44\)"):
            reader(cluster).leader(("t", 1))


@pytest.mark.parametrize("code", [29, 42])
def test_bounds_that_a_leader_never_tells_end_the_run(cluster: Brokers, code: int) -> None:
    """Whoever may not ask where a log begins is not asked for half a minute."""
    cluster.faults = {1: [1], 2: [code]}
    with cluster, pytest.raises(FatalError, match=rf"t-0.*begins and ends.*\({code}\)"):
        read(reader(cluster), 5, 7)


def test_a_broker_that_does_not_wait_is_not_asked_without_end(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that answers at once that it has nothing, whatever wait it was asked for, costs a few requests a second."""
    monkeypatch.setattr(fetcher, "_RETRY_TIMEOUT_S", 0.5)
    cluster.logs["t", 0].stable, cluster.longest_wait_ms = 8, 0
    with cluster, pytest.raises(RetriableError, match="a transaction is open"):
        read(reader(cluster, retry_backoff_ms="100", retry_backoff_max_ms="1000"), 8, 10)
    assert sum(one.api == 1 for one in cluster.asked) < 20


def test_connections_that_were_idle_are_opened_anew(cluster: Brokers) -> None:
    """One that nobody used for long is not used again, as a load balancer may have cut it; others are."""
    with cluster:
        client = reader(cluster)
        host = cluster.advertised[1]
        assert client.connection(host) is client.connection(host)
        hasty = reader(cluster, connections_max_idle_ms="0")
        assert hasty.connection(host) is not hasty.connection(host)


def test_a_silent_broker_is_left_for_another(cluster: Brokers) -> None:
    """A bootstrap server that accepts and says nothing costs its time-out once, then others are asked first."""
    cluster.silent.add(3)
    servers = f"127.0.0.1:{cluster.port(3)},{cluster.servers}"
    with cluster:
        client = reader(cluster, bootstrap_servers=servers, socket_connection_setup_timeout_ms="50")
        assert read(client, 5, 10) == [5, 6, 7, 8, 9]
        cluster.silent.clear()
        client.forget(("t", 0))
        cluster.asked.clear()
        assert read(client, 5, 10) == [5, 6, 7, 8, 9]
        assert 3 not in {one.node for one in cluster.asked}


def test_pauses_grow_and_differ() -> None:
    """Each failure doubles the pause up to the greatest, give or take a fifth."""
    for failures, expected in ((0, 0.1), (1, 0.1), (2, 0.2), (4, 0.8), (9, 1.0), (10**9, 1.0)):
        pauses = {pause_s(failures, 0.1, 1.0) for _ in range(20)}
        assert all(0.8 * expected <= pause <= 1.2 * expected for pause in pauses)
        assert len(pauses) > 1


def test_no_more_is_asked_for_than_is_left_of_a_range(cluster: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last fetch of a range asks for about its rest, by what records took before; too little is asked for again."""
    log = cluster.logs["t", 0] = Log(start=0, leader=1, epoch=3)
    for offset in range(0, 3_000, 10):
        # The last records are ten times as large as any before.
        value = b"v" * (1_000 if offset < 2_500 else 10_000)
        log.add(batch([Record(offset + place, b"k", value) for place in range(10)], offset, offset + 9, epoch=3))
    asked: list[int] = []
    usual = fetcher.FetchRequest
    monkeypatch.setattr(fetcher, "FetchRequest", lambda **told: asked.append(told["max_bytes"]) or usual(**told))
    monkeypatch.setattr(fetcher, "_record_bytes", {})
    how = fetcher.FetchSettings(partition_bytes=1 << 20)
    with cluster:
        client = reader(cluster)
        for start, end in ((0, 1_500), (1_500, 1_600), (1_600, 3_000)):
            asked.clear()
            chunks = fetcher.fetch_records(client, OffsetRange("t", 0, start, end), how)
            assert [offset for one in chunks for offset in one.offset.tolist()] == list(range(start, end))
            if start == 0:
                assert asked[0] == 1 << 20
                assert 450_000 < asked[1] < 700_000
            elif start == 1_500:
                assert len(asked) == 1
                assert 100_000 < asked[0] < 200_000
