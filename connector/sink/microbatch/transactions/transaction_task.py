"""Consumed records -> what they tell of transactions: a row per transaction, table and partition. On executors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema

from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.sink.convert.converters import transaction_converter
from connector.sink.convert.failing_records import readable
from connector.sink.convert.header_ids import frame_by_headers, read_wanted_headers
from connector.sink.model.plan import BatchPlan
from connector.sink.model.task_output import Task
from serde.arrays import column_at
from serde.events.kinds.cloudevents import is_cloud_event, unwrap_cloud_events
from serde.events.kinds.event_kind import TRANSACTION_METADATA_TYPE
from serde.messages import MessageBlock

TRANSACTION_SCHEMA = pa.schema(
    [
        ("ends", pa.bool_()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("id", pa.string()),
        ("said", pa.string()),
        ("collection", pa.string()),
        ("with_db", pa.string()),
        ("whole", pa.string()),
        ("count", pa.int64()),
        ("orders", pa.list_(pa.int64())),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("ts_ms", pa.int64()),
    ]
)


SPARK_SCHEMA = from_arrow_schema(TRANSACTION_SCHEMA)


_POSTGRES_ID = r"^(\d+):\d+$"
"""PostgreSQL's ids have the event's own position behind the transaction ("Transaction metadata" of its connector)."""


def transaction_task(plan: BatchPlan, topic: str | None) -> Task:
    """Return the task that tells of each transaction what a share of the records has of it."""
    reading = transaction_converter(plan)
    topics = tuple({name for name, _ in plan.ranks})

    def read(run: ConsumerRecords) -> list[pa.RecordBatch]:
        ends = run.topic == topic
        run = frame_by_headers(read_wanted_headers(run, plan.events), plan.events)
        blocks = reading.decode(run.value, "VALUE_CONVERTER", TRANSACTION_METADATA_TYPE if ends else None).blocks
        counts = [_read_ends(run, block, topics) if ends else _count_events(run, block, plan) for block in blocks]
        return [count for count in counts if count is not None]

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for chunk in plan.assignment.chunks(number):
                    if chunk.topic == topic:
                        chunk.check_readable()
                    if chunk.unreadable is None:
                        yield from readable(chunk, read)

    return task


def _read_text(fields: pa.StructArray, *paths: str) -> pa.StringArray:
    """Return the first text column that is there, nulls without any."""
    text_columns = (
        column for path in paths if (column := column_at(fields, path)) is not None and pa.types.is_string(column.type)
    )
    return next(text_columns, pa.nulls(len(fields), pa.string()))


def _transaction_ids(column: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring_regex(column, _POSTGRES_ID, r"\1")


def _count_events(run: ConsumerRecords, block: MessageBlock, plan: BatchPlan) -> pa.RecordBatch | None:
    """Count the events of each transaction and table; events outside of transactions are in none."""
    fields = (unwrap_cloud_events(block) if is_cloud_event(block) else block).fields
    prefix = plan.events.add_fields_prefix
    ids = _read_text(fields, "transaction.id", f"{prefix}transaction_id")
    if ids.null_count == len(ids):
        return None
    joined, offsets = _name_tables(run.topic, fields, prefix), run.offset[block.rows]
    order = _read_orders(fields, prefix)
    table = pa.table({"id": _transaction_ids(ids), **joined, "offset": pa.array(offsets), "order": order})
    events = table.filter(pc.is_valid(table["id"]))
    told = [*(("offset", what) for what in ("count", "min", "max")), ("order", "distinct")]
    grouped = events.group_by(["id", *joined]).aggregate(told)
    count = len(grouped)
    constant = {"ends": False, "topic": run.topic, "partition": run.partition, "said": None, "ts_ms": None}
    columns = {
        name: pa.repeat(pa.scalar(value, TRANSACTION_SCHEMA.field(name).type), count)
        for name, value in constant.items()
    }
    renamed = {"count": "offset_count", "first": "offset_min", "last": "offset_max", "orders": "order_distinct"}
    for name in ("id", *joined, *renamed):
        columns[name] = grouped[renamed.get(name, name)].combine_chunks()
    if events["order"].null_count:
        columns["orders"] = pa.nulls(count, TRANSACTION_SCHEMA.field("orders").type)
    return pa.RecordBatch.from_arrays([columns[field.name] for field in TRANSACTION_SCHEMA], schema=TRANSACTION_SCHEMA)


def _name_tables(topic: str, fields: pa.StructArray, prefix: str) -> dict[str, pa.StringArray]:
    """Return the names that an end may have for the table of each event.

    Who tells none, as MongoDB's events and flattened ones without it, is of the table that the topic is named after.
    """
    names = ("db", "schema", "table")
    parts = {name: _read_text(fields, f"source.{name}", f"{prefix}{name}").fill_null("") for name in names}
    is_unnamed, words = pc.equal(parts["table"], ""), topic.split(".")
    joined = {"collection": ("schema", "table"), "with_db": ("db", "table"), "whole": names}
    return {
        name: pc.if_else(
            is_unnamed,
            ".".join(words[-len(own) :]),
            pc.binary_join_element_wise(*(parts[one] for one in own), "."),
        )
        for name, own in joined.items()
    }


def _read_orders(fields: pa.StructArray, prefix: str) -> pa.Int64Array:
    """Return the numbers of events in their transactions, as far as they tell them."""
    paths = ("transaction.total_order", f"{prefix}transaction_total_order", f"{prefix}total_order")
    return pc.coalesce(*(_read_whole(fields, path) for path in paths))


def _read_ends(run: ConsumerRecords, block: MessageBlock, topics: tuple[str, ...]) -> pa.RecordBatch | None:
    """Return what END events say: a row per transaction and table. `whole` is set for tables that have a topic here.

    Without a transaction, table or number that can be read it says nothing: then the transaction's end is waited for.
    """
    fields = block.fields
    lists = column_at(fields, "data_collections")
    ended = np.asarray(pc.equal(_read_text(fields, "status"), "END").fill_null(False))
    if lists is None or not pa.types.is_list(lists.type) or not pa.types.is_struct(lists.type.value_type):
        return None
    rows = np.flatnonzero(ended)
    chosen = lists.take(pa.array(rows))
    places = rows[np.asarray(pc.list_parent_indices(chosen))]
    items = pc.list_flatten(chosen)
    parents = pa.array(places)
    collections = _read_text(items, "data_collection")
    offsets = pa.array(run.offset[block.rows][places])
    known = [text is not None and any(name.endswith(f".{text}") for name in topics) for text in collections.to_pylist()]
    columns = {
        "ends": pa.repeat(pa.scalar(True), len(collections)),
        "topic": pa.repeat(pa.scalar(run.topic), len(collections)),
        "partition": pa.repeat(pa.scalar(run.partition, pa.int32()), len(collections)),
        "id": _transaction_ids(_read_text(fields, "id")).take(parents),
        "said": collections,
        "collection": pa.nulls(len(collections), pa.string()),
        "with_db": pa.nulls(len(collections), pa.string()),
        "whole": pc.if_else(pa.array(known, pa.bool_()), collections, pa.scalar(None, pa.string())),
        "count": _read_whole(items, "event_count"),
        "orders": pa.nulls(len(collections), TRANSACTION_SCHEMA.field("orders").type),
        "first": offsets,
        "last": offsets,
        "ts_ms": _read_whole(fields, "ts_ms").take(parents),
    }
    batch = pa.RecordBatch.from_arrays([columns[field.name] for field in TRANSACTION_SCHEMA], schema=TRANSACTION_SCHEMA)
    return batch.filter(pc.and_(pc.and_(batch["id"].is_valid(), batch["said"].is_valid()), batch["count"].is_valid()))


def _read_whole(fields: pa.StructArray, path: str) -> pa.Int64Array:
    """Return a column of whole numbers, nulls without any."""
    column = column_at(fields, path)
    if column is None or not pa.types.is_integer(column.type) or pa.types.is_uint64(column.type):
        return pa.nulls(len(fields), pa.int64())
    return column.cast(pa.int64())
