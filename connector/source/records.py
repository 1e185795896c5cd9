"""changes + how they look -> Kafka records, each side in its format."""

from __future__ import annotations

from pyspark.sql import DataFrame

from connector.source import avro
from connector.source.envelope import Wire, text_records


def records(changes: DataFrame, wire: Wire, *, reads: bool) -> DataFrame:
    """Give the Kafka records: columns `key`, `value` (text, bytes or null) and, where keys change, `headers`.

    Args:
        changes: `op`, `before`, `after`, `row_id`, and `total_order` if the wire is `ordered`.
        wire: what the events look like.
        reads: all rows are `r`: then every row is one record.
    """
    if wire.value_avro is not None:
        return avro.with_values(changes, wire, wire.value_avro, reads=reads)
    made = text_records(changes, wire, reads=reads)
    return made if wire.key is None or wire.key_avro is None else avro.with_keys(made, wire.key_avro)
