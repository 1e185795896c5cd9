"""Records -> rows of the one table of the `icebergevents` consumer: every event as it came, as text, appended.

Table, partitions and sort order are those of Debezium Server Iceberg.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm
from connector.settings.iceberg.new_tables.sort_order import SortTerm
from connector.sink.convert.change_order import order_by_offset
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import BatchPlan, SchemaChange, TablePlan
from serde.arrays import Mask
from serde.events.kinds.operations import OP_CREATE
from serde.faults import RecordError

TABLE = "debezium_events"
SCHEMA = Schema(
    NestedField(1, "event_destination", StringType(), required=True),
    NestedField(2, "event_key", StringType()),
    NestedField(3, "event_value", StringType()),
    NestedField(4, "event_sink_epoch_ms", LongType()),
    NestedField(5, "event_sink_timestamptz", TimestamptzType()),
)
PARTITIONS = (PartitionTerm("event_destination", "identity"), PartitionTerm("event_sink_timestamptz", "hour"))
SORT_ORDER = (SortTerm(PartitionTerm("event_sink_epoch_ms", "identity"), nulls_first=False),)
_REQUESTED_ROW = pa.struct([("event_destination", pa.string())])


def request_table(topic: str) -> SchemaChange:
    """Ask for the table."""
    return SchemaChange(topic, _REQUESTED_ROW, None, {})


def build_rows(run: ConsumerRecords, table: TablePlan, plan: BatchPlan) -> tuple[ChangeBatch, list[RecordError]]:
    """Make the rows of records; those that are no text are faults."""
    offset = run.offset
    keys, bad_keys = _decode_texts(run.key)
    values, bad_values = _decode_texts(run.value)
    now = pa.scalar(plan.raw_ms, pa.int64())
    fields = {
        "event_destination": pa.array([run.topic] * len(offset), pa.string()),
        "event_key": keys,
        "event_value": values,
        "event_sink_epoch_ms": pa.repeat(now, len(offset)),
        "event_sink_timestamptz": pa.repeat(now.cast(pa.timestamp("ms", "UTC")), len(offset)),
    }
    columns = [
        fields[field.name].cast(field.type) if field.name in fields else pa.nulls(len(offset), field.type)
        for field in table.layout.columns
    ]
    order = order_by_offset(offset, plan.ranks[run.at], OP_CREATE)
    all_rows = np.ones(len(offset), np.bool_)
    part = ChangeBatch(pa.RecordBatch.from_arrays(columns, schema=table.layout.rows), order, ~all_rows, all_rows)
    bad = bad_keys | bad_values
    faults = [RecordError(int(row), "VALUE_CONVERTER", "key or value is no UTF-8 text") for row in np.flatnonzero(bad)]
    return (part.take(np.flatnonzero(~bad)) if bad.any() else part), faults


def _decode_texts(data: pa.Array) -> tuple[pa.StringArray, Mask]:
    try:
        return data.cast(pa.string()), np.zeros(len(data), np.bool_)
    except pa.ArrowInvalid:
        # Rare: only then is each value tried.
        texts = [_decode_text(value) for value in data.to_pylist()]
        array = pa.array(texts, pa.string())
        return array, np.asarray(array.is_null()) & np.asarray(data.is_valid())


def _decode_text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
