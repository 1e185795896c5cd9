"""A batch -> the systems that it reaches: ports of the job, the destination, stored offsets and Kafka."""

from __future__ import annotations

import attrs

from connector.iceberg.state.offsets_table import OffsetsTable
from connector.kafka.admin import KafkaAdmin
from connector.kafka.consumer_group import ConsumerGroup
from connector.kafka.dlq.writer import DeadLetterWriter
from connector.sink.microbatch.transactions.transactions import Transactions
from connector.sink.model.destination import Destination
from connector.sink.model.job import Job


@attrs.frozen(eq=False)
class SinkPorts:
    """The ports of a sink, which tests replace; `transactions` is None if a batch may end inside a transaction."""

    job: Job
    destination: Destination
    offsets: OffsetsTable
    cluster: KafkaAdmin
    letters: DeadLetterWriter
    group: ConsumerGroup
    transactions: Transactions | None = None
