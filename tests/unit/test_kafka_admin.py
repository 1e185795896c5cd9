"""The driver's look at a cluster -> offsets, or an error to try again: never a number that stands for none."""

from __future__ import annotations

import pytest

from connector.errors import RetriableError
from connector.kafka.admin import KafkaAdmin
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
