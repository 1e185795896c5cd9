"""Records of Debezium's outbox router -> rows of one table per aggregate type: every event, appended. No I/O.

The columns are those of the outbox table that the router documents: `id` (a header), `aggregatetype` (the end of the
topic), `aggregateid` (the record's key), `type` (a header, where the router is told to send it), `payload` (the value
as text, an expanded one as its JSON, or bytes), and what the router places into the value beside the payload.
Source: Debezium's documentation, "Outbox Event Router".
"""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types.schemas.arrow_types import VARIANT_ARROW_TYPE, is_storable
from connector.iceberg.types.schemas.schema_evolution import evolve
from connector.iceberg.types.values.conversion import convert
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.settings.configdef.regexps import compile_java
from connector.sink.convert.change_order import order_by_offset
from connector.sink.convert.events.outbox_values import Reading, read_texts, read_values
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import BatchPlan, SchemaChange, TablePlan
from serde.events.kinds.operations import OP_CREATE
from serde.faults import RecordError
from serde.formats import make_deserializer

ID, AGGREGATE_TYPE, AGGREGATE_ID, TYPE, PAYLOAD = "id", "aggregatetype", "aggregateid", "type", "payload"
ID_HEADERS, TYPE_HEADERS = ("id",), ("type", "eventType")
HEADERS = (*ID_HEADERS, *TYPE_HEADERS)
_HEADER_READING = Reading(make_deserializer("auto").decode)
"""Connect writes headers as texts, and as JSON with that header.converter."""


def find_aggregate_type(topic: str, pattern: str | None) -> str | None:
    """Return the aggregate type that a topic of the router is for: its pattern's first group, else the topic itself."""
    match = None if pattern is None else compile_java(pattern).fullmatch(topic)
    if match is None:
        return None
    return match[1] if match.re.groups and match[1] is not None else topic


@attrs.frozen(eq=False)
class OutboxRows:
    """Rows of the table, or the need of one that has their columns; and records that are no events."""

    part: ChangeBatch | None
    need: SchemaChange | None
    faults: list[RecordError]


@attrs.frozen
class OutboxFormat:
    """How keys and values are read that are no plain text; None: all are.

    `raw`: whether values are bytes, which a payload of bytes takes as they are.
    """

    key: Reading | None
    value: Reading | None
    raw: bool


def build_outbox_rows(
    run: ConsumerRecords, aggregate: str, table: TablePlan | None, plan: BatchPlan, form: OutboxFormat
) -> OutboxRows:
    """Make the rows of a run of records of a topic of the router.

    Args:
        run: the records.
        aggregate: their aggregate type.
        table: their table, None where there is none yet.
        plan: the batch's.
        form: how they are read.
    """
    count = len(run.offset)
    columns, faults = _read_payloads(run.value, form.value, table, raw=form.raw)
    keys, bad_keys = read_texts(run.key, AGGREGATE_ID, form.key)
    fields = {
        ID: _header_text(run, ID_HEADERS),
        AGGREGATE_TYPE: pa.repeat(pa.scalar(aggregate), count),
        AGGREGATE_ID: keys,
        TYPE: _header_text(run, TYPE_HEADERS),
    }
    # What stands beside the payload is closer to the event than a header of the same name.
    fields |= {
        n: c if n not in fields or c.null_count == 0 else pc.coalesce(c.cast(pa.string()), fields[n])
        for n, c in columns.items()
    }
    fields = {name: column for name, column in fields.items() if name not in plan.excluded_columns}
    faults += bad_keys
    if table is None and len({fault.row for fault in faults}) == count:
        # Nothing here could become a row, so it is no reason for a table.
        return OutboxRows(None, None, faults)
    need = _find_need(run.topic, fields, table, plan)
    if need is not None or table is None:
        return OutboxRows(None, need, faults)
    return _build_part(run, fields, table, plan, faults)


def _find_need(
    topic: str, fields: dict[str, pa.Array], table: TablePlan | None, plan: BatchPlan
) -> SchemaChange | None:
    members = [pa.field(name, column.type) for name, column in fields.items() if is_storable(column.type)]
    if plan.variants and (table is None or PAYLOAD not in table.layout.columns.names):
        texts = {PAYLOAD} if PAYLOAD in fields and pa.types.is_string(fields[PAYLOAD].type) else set()
        members = [field.with_type(VARIANT_ARROW_TYPE) if field.name in texts else field for field in members]
    shape = pa.struct(members)
    if table is not None:
        columns = table.layout.columns
        if not plan.evolve or evolve(columns, shape, add=True).equals(columns):
            return None
    return SchemaChange(topic, shape, None, {}, dated=False)


def _build_part(
    run: ConsumerRecords, fields: dict[str, pa.Array], table: TablePlan, plan: BatchPlan, faults: list[RecordError]
) -> OutboxRows:
    count, columns = len(run.offset), []
    for field in table.layout.rows:
        column, bad = (
            convert(fields[field.name], field.type) if field.name in fields else (pa.nulls(count, field.type), None)
        )
        columns.append(column)
        reason = f"column {field.name}: a value does not fit the table's {field.type}"
        wrong = [] if bad is None else np.flatnonzero(bad).tolist()
        faults += [RecordError(row, "TASK_PUT", reason) for row in wrong]
    order = order_by_offset(run.offset, plan.ranks[run.at], OP_CREATE)
    all_rows = np.ones(count, np.bool_)
    part = ChangeBatch(pa.RecordBatch.from_arrays(columns, schema=table.layout.rows), order, ~all_rows, all_rows)
    keep = run.offset >= table.committed.get(run.at, 0)
    keep[[fault.row for fault in faults]] = False
    return OutboxRows(part if keep.all() else part.take(np.flatnonzero(keep)), None, faults)


def _header_text(run: ConsumerRecords, names: tuple[str, ...]) -> pa.Array:
    texts = [read_texts(run.headers[name], name, _HEADER_READING)[0] for name in names if name in run.headers]
    return pc.coalesce(*texts) if texts else pa.nulls(len(run.offset), pa.string())


def _read_payloads(
    data: pa.Array, read: Reading | None, table: TablePlan | None, *, raw: bool
) -> tuple[dict[str, pa.Array], list[RecordError]]:
    """Payloads, and what stands beside them: of bytes where the table says so, of a new one where converter or schema
    do; texts are their UTF-8 then.
    """
    columns = None if table is None else table.layout.columns
    known = columns is not None and PAYLOAD in columns.names
    binary = raw if columns is None or not known else pa.types.is_binary(columns.field(PAYLOAD).type)
    if raw and binary:
        return {PAYLOAD: data.cast(pa.binary())}, []
    fields, faults = read_values(data, PAYLOAD, read, keep_bytes=binary or not known)
    return {**fields, PAYLOAD: fields[PAYLOAD].cast(pa.binary()) if binary else fields[PAYLOAD]}, faults
