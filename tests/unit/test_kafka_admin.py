"""The driver's look at a cluster -> offsets, or an error to try again: never a number that stands for none."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from connector.errors import RetriableError
from connector.kafka.admin import KafkaAdmin, is_transient_error
from connector.settings import KafkaSettings
from tests.brokers import Brokers, Log

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
