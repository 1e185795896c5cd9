"""changes + how they look -> Kafka records, each side in its format."""

from __future__ import annotations

from pyspark.sql import DataFrame

from connector.source.envelope import avro_records
from connector.source.envelope.envelope import EventFormat, to_json_records


def to_kafka_records(changes: DataFrame, wire: EventFormat, *, reads: bool) -> DataFrame:
    """Give the Kafka records: columns `key`, `value` (text, bytes or null) and, where keys change, `headers`.

    Args:
        changes: `op`, `before`, `after`, `row_id`, and `total_order` if the wire is `ordered`.
        wire: what the events look like.
        reads: all rows are `r`: then every row is one record.
    """
    if wire.value_avro is not None:
        return avro_records.to_avro_records(changes, wire, wire.value_avro, reads=reads)
    made = to_json_records(changes, wire, reads=reads)
    return made if wire.key is None or wire.key_avro is None else avro_records.with_avro_keys(made, wire.key_avro)
