"""Positions -> the consumer group's offsets: what brokers that are silent hold up."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from attrs import define, field
from confluent_kafka import KafkaError, KafkaException

from connector.kafka import consumer_group
from connector.kafka.consumer_group import ConsumerGroup
from connector.settings import KafkaSettings

SETTINGS = KafkaSettings("h:1", ("t",), None, "g", "earliest", {}, {}, {})


@define
class Client:
    """Notes down what it is told; its brokers answer when they are let go."""

    fault: KafkaException | None = None
    silent: bool = False
    released: threading.Event = field(factory=threading.Event)
    closed: threading.Event = field(factory=threading.Event)
    commits: list[int] = field(factory=list)

    def commit(self, *, offsets: list[Any], asynchronous: bool) -> None:
        assert not asynchronous
        assert not self.silent or self.released.wait(60)
        if self.fault is not None:
            raise self.fault
        self.commits.append(offsets[0].offset)

    def close(self) -> None:
        self.closed.set()


def open_group(client: Client, monkeypatch: pytest.MonkeyPatch) -> ConsumerGroup:
    """A group of that client."""
    monkeypatch.setattr(consumer_group, "Consumer", lambda _: client)
    monkeypatch.setattr(consumer_group, "_ANSWER_S", 0.05)
    return ConsumerGroup(SETTINGS)


def test_a_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What went wrong is returned, and the next offsets are tried again."""
    client = Client(fault=KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)))
    group = open_group(client, monkeypatch)
    monkeypatch.setattr(consumer_group, "_ANSWER_S", 30.0)
    told = group.commit_offsets({("t", 0): 5}) or ""
    assert "could not follow: " in told and "give this user READ on the group" in told
    client.fault = None
    assert group.commit_offsets({("t", 0): 6}) is None
    assert client.commits == [6]
    group.close()
    assert client.closed.is_set()


def test_silent_brokers_hold_up_no_batch_and_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for them long, one call is made at a time, and the client is closed behind the last one."""
    client = Client(silent=True)
    group = open_group(client, monkeypatch)
    for offset in (5, 6):
        assert "the brokers do not answer" in (group.commit_offsets({("t", 0): offset}) or "")
    group.close()
    assert not client.closed.is_set()
    client.released.set()
    assert client.closed.wait(20)
    assert client.commits == [5]
