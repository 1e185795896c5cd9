"""A few records per topic -> tables that are ready before the first batch.

Without this the first batch would be read twice: once to see its shapes, once to write it. Samples are a shortcut, not
a decision: a shape that they miss is met, and handled the same way, by the batch that holds it.
"""

from __future__ import annotations

import structlog

from connector.errors import ConnectorError
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.kafka.record_lookup import RecordReader, to_consumer_records
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import KafkaSettings
from connector.sink.convert.decoder import decode
from connector.sink.model.plan import BatchPlan, SchemaChange

SAMPLE_RECORDS = 20
"""Records read at the start of each topic-partition; one more is read at its end, for the newest schema."""

SAMPLE_BYTES = 1024**2
"""No more records of a topic-partition are read once they are this large."""

MAX_SAMPLED_PARTITIONS = 200


def sample_schemas(
    kafka: KafkaSettings, plan: BatchPlan, position: KafkaOffsets, ends: KafkaOffsets
) -> list[SchemaChange]:
    """Return the needs of sampled records, oldest shapes first; none when sampling fails (the batch will tell)."""
    waiting = [at for at, end in sorted(ends.offsets.items()) if end > position.offsets.get(at, end)]
    try:
        with RecordReader(kafka) as records:
            chosen = waiting[:MAX_SAMPLED_PARTITIONS]
            oldest = records.read_from({at: position.offsets[at] for at in chosen}, SAMPLE_RECORDS, SAMPLE_BYTES)
            newest = records.read_from({at: ends.offsets[at] - 1 for at in chosen if _is_long(at, position, ends)}, 1)
        found = [pair for part in (oldest, newest) for pair in part.items()]
        runs = [to_consumer_records(at, records) for at, records in found if records]
        return [need for run in runs for need in decode(run, plan).needs]
    except ConnectorError as error:
        structlog.get_logger().info("no events could be sampled", reason=str(error))
        return []


def _is_long(at: TopicPartition, position: KafkaOffsets, ends: KafkaOffsets) -> bool:
    return ends.offsets[at] - position.offsets[at] > SAMPLE_RECORDS
