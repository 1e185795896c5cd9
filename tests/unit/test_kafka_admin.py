"""The driver's look at a cluster -> offsets, or an error to try again: never a number that stands for none."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

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
