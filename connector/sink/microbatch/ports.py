"""What the batches of a sink reach the world by: the job, the destination, stored offsets and Kafka."""

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
    """The other side of a sink, which tests replace; `transactions` is None where batches may cut transactions."""

    job: Job
    destination: Destination
    offsets: OffsetsTable
    cluster: KafkaAdmin
    letters: DeadLetterWriter
    group: ConsumerGroup
    transactions: Transactions | None = None
